//! Where the bytes of a trace come from: a file, or a thread that unpacks it.
//!
//! Unpacking takes about as long as reading what comes out, so two cores share the work evenly. Blocks end where an event
//! does, so that they can be handed on as they are. Of a file that is not packed, the ends of events are found without
//! reading what is between them.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, Scope},
};

use super::document::{Supply, end_of_events, next_end_of_event};

/// How much is handed over at once: little enough to stay in a core's own cache.
const BLOCK: usize = 512 << 10;
/// How many blocks may wait to be read.
const WAITING: usize = 8;
/// Within how many bytes an event ends. The few that are longer are read by whoever looks for the end.
const LONGEST_EVENT: usize = 16 << 10;

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
        let (empty, from_reader) = sync_channel::<Vec<u8>>(2 * WAITING);
        let unpack = move || {
            let mut begun = Vec::new();
            loop {
                let mut block = from_reader.try_recv().unwrap_or_default();
                let read = fill(&mut block, &begun, &mut bytes);
                begun.clear();
                // What came before an error can be read all the same.
                let ended = !matches!(read, Ok(true));
                if let Some(end) = end_of_events(&block).filter(|_| !ended) {
                    begun.extend_from_slice(&block[end..]);
                    block.truncate(end);
                }
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

    /// Where blocks go that nobody needs any more, to be filled again.
    pub(super) fn emptied(&self) -> SyncSender<Vec<u8>> {
        self.empty.clone()
    }
}

/// Fills a block with what is begun and what follows; says whether more may follow.
fn fill(block: &mut Vec<u8>, begun: &[u8], bytes: &mut impl Read) -> io::Result<bool> {
    block.resize(begun.len() + BLOCK, 0);
    block[..begun.len()].copy_from_slice(begun);
    let mut filled = begun.len();
    let read = loop {
        match bytes.read(&mut block[filled..]) {
            Ok(0) => break Ok(filled == block.len()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    block.truncate(filled);
    read
}

impl Supply for Blocks {
    fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let Ok(block) = self.full.recv() else { return Ok(false) };
        let block = block?;
        if to.is_empty() {
            *to = block;
        } else {
            to.extend_from_slice(&block);
            // Room that is not needed goes.
            drop(self.empty.try_send(block));
        }
        Ok(true)
    }
}

/// A file that is not packed.
pub(super) struct PlainFile {
    file: Arc<File>,
    /// How many of its bytes were given out or passed over.
    taken: Arc<AtomicU64>,
    /// The same for others, who may look at several readers of the file.
    shown: Arc<AtomicU64>,
}

impl PlainFile {
    /// One from its beginning on, and how many bytes were taken from it so far.
    pub(super) fn new(file: Arc<File>, shown: &Arc<AtomicU64>) -> (PlainFile, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        (PlainFile { file, taken: taken.clone(), shown: shown.clone() }, taken)
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn take_to(&self, end: u64) {
        self.taken.store(end, Ordering::Relaxed);
        self.shown.store(end, Ordering::Relaxed);
    }
}

impl Supply for PlainFile {
    fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let before = to.len();
        to.resize(before + BLOCK, 0);
        let read = self.file.read_at(&mut to[before..], self.taken());
        to.truncate(before + *read.as_ref().unwrap_or(&0));
        let read = read?;
        self.take_to(self.taken() + read as u64);
        Ok(read > 0)
    }

    fn pass_over(&mut self, unread: usize) -> Option<Range<u64>> {
        let begin = self.taken() - unread as u64;
        let around = begin + BLOCK as u64;
        let mut bytes = vec![0; LONGEST_EVENT];
        let read = self.file.read_at(&mut bytes, around).ok()?;
        let end = around + next_end_of_event(&bytes[..read])? as u64;
        self.take_to(end);
        Some(begin..end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const EVENT: &str = "\n  {\n    \"ph\": \"X\", \"name\": \"k\",\n    \"args\": {\n      \"a\": 1\n    }\n  },";

    /// Many events, and something behind them.
    fn text() -> String {
        format!("{{\"traceEvents\": [{}\n  {{}}]}}", EVENT.repeat(5 * BLOCK / 2 / EVENT.len()))
    }

    #[test]
    fn blocks_end_where_an_event_does() {
        let text = text();
        thread::scope(|scope| {
            let mut blocks = Blocks::of(scope, text.as_bytes()).unwrap();
            let (mut all, mut count) = (Vec::new(), 0);
            loop {
                let mut block = Vec::new();
                if !blocks.append_next(&mut block).unwrap() {
                    break;
                }
                assert!(block.ends_with(b"\n  },") || block.ends_with(b"]}"), "{count}");
                all.extend(block);
                count += 1;
            }
            assert!(all == text.as_bytes() && count == 3, "{count}");
        });
    }

    #[test]
    fn stretches_of_a_file_are_whole_events_and_leave_nothing_out() {
        let text = text();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let (mut plain, taken) = PlainFile::new(Arc::new(file), &Arc::default());
        let mut begin = Vec::new();
        assert!(plain.append_next(&mut begin).unwrap());
        let head = text.find('[').unwrap() + 1;
        let (mut end, mut count) = (head as u64, 0);
        let mut unread = begin.len() - head;
        while let Some(stretch) = plain.pass_over(unread) {
            assert_eq!(stretch.start, end);
            end = stretch.end;
            assert!(text[..end as usize].ends_with("\n  },"));
            (unread, count) = (0, count + 1);
        }
        assert_eq!((count, taken.load(Ordering::Relaxed)), (2, end));
        let mut rest = Vec::new();
        while plain.append_next(&mut rest).unwrap() {}
        assert!(rest == text.as_bytes()[end as usize..]);
    }
}
