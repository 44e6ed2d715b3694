//! A file that grows. Where many are followed, each is open only while it is read.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::regular_file::open_regular;

/// So many stay open in all: a process may have 1,024 files open, mostly.
const MOST_OPEN: usize = 512;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file, read from its beginning on.
pub(crate) struct GrowingFile {
    path: PathBuf,
    kept: Option<KeptOpen>,
    read: u64,
}

impl GrowingFile {
    /// None, where it is not there yet.
    pub(crate) fn open(path: PathBuf) -> io::Result<Option<GrowingFile>> {
        match open_regular(&path) {
            Ok(file) => Ok(Some(GrowingFile { path, kept: KeptOpen::of(file), read: 0 })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How long it is now.
    pub(crate) fn len(&self) -> u64 {
        let metadata = match &self.kept {
            Some(KeptOpen(file)) => file.metadata(),
            None => fs::metadata(&self.path),
        };
        metadata.map_or(0, |metadata| metadata.len())
    }

    /// Appends the next bytes of it, up to this many; returns how many there were. One that is gone has no more.
    pub(crate) fn read_more(&mut self, bytes: &mut Vec<u8>, most: u64) -> io::Result<u64> {
        let read = match &self.kept {
            Some(KeptOpen(file)) => file.take(most).read_to_end(bytes)?,
            None if self.len() <= self.read => 0,
            None => match open_regular(&self.path) {
                Ok(mut file) => {
                    file.seek(SeekFrom::Start(self.read))?;
                    file.take(most).read_to_end(bytes)?
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            },
        };
        self.read += read as u64;
        Ok(read as u64)
    }
}

/// One of those that stay open.
struct KeptOpen(File);

impl KeptOpen {
    fn of(file: File) -> Option<KeptOpen> {
        // Too many are let go of again at once.
        let is_one_of_them = OPEN.fetch_add(1, Ordering::Relaxed) < MOST_OPEN;
        let kept = KeptOpen(file);
        is_one_of_them.then_some(kept)
    }
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn files_that_do_not_stay_open_are_read_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(number.to_string());
        assert!(GrowingFile::open(path(0)).unwrap().is_none());
        let mut all: Vec<GrowingFile> = (0..2 * MOST_OPEN)
            .map(|number| {
                fs::write(path(number), format!("{number} begins,")).unwrap();
                GrowingFile::open(path(number)).unwrap().unwrap()
            })
            .collect();
        // Other tests have some, too, and let go of them at any time.
        assert!(all.iter().filter(|file| file.kept.is_some()).count() <= MOST_OPEN);
        let place = |is_kept: bool| all.iter().position(|file| file.kept.is_some() == is_kept).unwrap();
        for number in [place(true), place(false)] {
            let growing = &mut all[number];
            let mut bytes = Vec::new();
            let mut more = |growing: &mut GrowingFile, most| {
                bytes.clear();
                let read = growing.read_more(&mut bytes, most).unwrap();
                (read, String::from_utf8(bytes.clone()).unwrap())
            };
            let begin = format!("{number} begins,");
            assert_eq!(more(growing, 3), (3, begin[..3].to_owned()));
            assert_eq!(more(growing, 99), (begin.len() as u64 - 3, begin[3..].to_owned()));
            assert_eq!(more(growing, 99), (0, String::new()));
            fs::OpenOptions::new().append(true).open(path(number)).unwrap().write_all(b" and grows").unwrap();
            assert_eq!(more(growing, 99), (10, " and grows".to_owned()));
            assert_eq!(growing.len(), begin.len() as u64 + 10);
            fs::remove_file(path(number)).unwrap();
            assert_eq!(more(growing, 99), (0, String::new()));
        }
    }
}
