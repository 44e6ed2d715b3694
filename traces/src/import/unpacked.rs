//! The bytes of a file, unpacked where it is packed with gzip.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;

/// How much is taken from a file at once.
const CHUNK: usize = 256 << 10;

/// What a gzip file begins with.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The bytes of a file from its beginning on, and how many were taken from the file itself so far.
pub(crate) fn open(file: Arc<File>) -> io::Result<(Box<dyn Read + Send>, Arc<AtomicU64>)> {
    open_shown(file, &Arc::default())
}

/// The same, where somebody else looks at how many were taken.
pub(crate) fn open_shown(
    file: Arc<File>,
    shown: &Arc<AtomicU64>,
) -> io::Result<(Box<dyn Read + Send>, Arc<AtomicU64>)> {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Counted { file, taken: taken.clone(), shown: shown.clone() };
    let mut counted = BufReader::with_capacity(CHUNK, counted);
    let is_packed = counted.fill_buf()?.starts_with(&GZIP);
    Ok((if is_packed { Box::new(MultiGzDecoder::new(counted)) } else { Box::new(counted) }, taken))
}

/// Counts what was taken from a file, which others may read too.
struct Counted {
    file: Arc<File>,
    taken: Arc<AtomicU64>,
    /// The same for others, who may look at several readers of the file.
    shown: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.taken.load(Ordering::Relaxed))?;
        let taken = self.taken.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
        self.shown.store(taken, Ordering::Relaxed);
        Ok(read)
    }
}
