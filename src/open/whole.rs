//! A file from its beginning to its end, and whether somebody has taken all of it.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Reads a file from its beginning, beside others who read the same one.
pub(super) struct Whole {
    file: Arc<File>,
    progress: Progress,
}

/// How much of a file has been taken.
#[derive(Clone)]
pub(super) struct Progress {
    taken: Arc<AtomicU64>,
    length: u64,
}

impl Whole {
    pub(super) fn of(file: Arc<File>) -> io::Result<Whole> {
        let length = file.metadata()?.len();
        Ok(Whole { file, progress: Progress { taken: Arc::default(), length } })
    }

    pub(super) fn length(&self) -> u64 {
        self.progress.length
    }

    /// How much of it is taken, for whoever cannot see that any more.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Progress {
    /// Whether all of it was. A connection that breaks off is no error to the server, but it does not take all.
    pub(super) fn is_whole(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.length
    }
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.progress.taken.load(Ordering::Relaxed))?;
        self.progress.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn two_may_read_and_only_all_of_it_is_whole() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = Arc::new(file);
        let (mut one, mut other) = (Whole::of(Arc::clone(&file)).unwrap(), Whole::of(file).unwrap());
        let (first, second) = (one.progress(), other.progress());
        let (mut part, mut all) = ([0; 4], Vec::new());
        one.read_exact(&mut part).unwrap();
        other.read_to_end(&mut all).unwrap();
        assert_eq!((&part, all.as_slice()), (b"0123", b"0123456789".as_slice()));
        assert!(!first.is_whole() && second.is_whole() && one.length() == 10);
    }
}
