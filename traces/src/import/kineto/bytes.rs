//! The bytes of a trace, unpacked by a thread of their own.
//!
//! Unpacking takes about as long as reading what comes out, so two cores share the work evenly.

use std::{
    io::{self, Read},
    mem,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, Scope},
};

/// How much is handed over at once.
const BLOCK: usize = 1 << 20;
/// How many blocks may wait to be read.
const WAITING: usize = 4;

/// Blocks of a trace, in order.
pub(super) struct Blocks {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: SyncSender<Vec<u8>>,
}

impl Blocks {
    /// Reads on another thread from now on.
    pub(super) fn of<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut bytes: impl Read + Send + 'scope,
    ) -> io::Result<Blocks> {
        let (to_reader, full) = sync_channel::<io::Result<Vec<u8>>>(WAITING);
        let (empty, from_reader) = sync_channel::<Vec<u8>>(WAITING + 2);
        let unpack = move || {
            loop {
                let mut block = from_reader.try_recv().unwrap_or_default();
                block.clear();
                let read = (&mut bytes).take(BLOCK as u64).read_to_end(&mut block);
                // What came before an error can be read all the same.
                let ended = !matches!(read, Ok(1..));
                let nobody_reads = !block.is_empty() && to_reader.send(Ok(block)).is_err();
                if let Err(error) = read {
                    drop(to_reader.send(Err(error)));
                }
                if ended || nobody_reads {
                    return;
                }
            }
        };
        thread::Builder::new().name("unpack".into()).spawn_scoped(scope, unpack)?;
        Ok(Blocks { full, empty })
    }

    /// Appends the next block; says whether there was one.
    pub(super) fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let Ok(block) = self.full.recv() else { return Ok(false) };
        let mut block = block?;
        if to.is_empty() {
            mem::swap(to, &mut block);
        } else {
            to.extend_from_slice(&block);
        }
        // Room that is not needed goes.
        drop(self.empty.try_send(block));
        Ok(true)
    }
}
