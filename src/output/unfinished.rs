//! A file that is still being written. It has no name until it is whole, so that whatever ends the program leaves nothing
//! behind; where a file system cannot do that, it has a hidden one.

use std::{
    fs::{File, Permissions},
    io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use tempfile::{Builder, NamedTempFile};

use super::HIDDEN;

/// A file that is still being written.
pub(crate) enum UnfinishedFile {
    /// Without a name, in this directory.
    Nameless(File, PathBuf),
    /// With one that is nobody's concern.
    Hidden(NamedTempFile),
}

impl UnfinishedFile {
    /// A new one in a directory, with these permissions as far as the program's mask lets it.
    pub(super) fn create(directory: &Path, mode: u32) -> io::Result<UnfinishedFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(CWD, directory, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => Ok(UnfinishedFile::Nameless(file.into(), directory.to_owned())),
            Err(_) => {
                let mut builder = Builder::new();
                builder.prefix(HIDDEN).permissions(Permissions::from_mode(mode));
                Ok(UnfinishedFile::Hidden(builder.tempfile_in(directory)?))
            }
        }
    }

    pub(super) fn file(&mut self) -> &mut File {
        match self {
            UnfinishedFile::Nameless(file, _) => file,
            UnfinishedFile::Hidden(file) => file.as_file_mut(),
        }
    }

    /// Gives it its name, which may be that of another one until now.
    pub(super) fn finish(self, path: &Path) -> io::Result<()> {
        match self {
            UnfinishedFile::Hidden(file) => file.persist(path).map(drop).map_err(|error| error.error),
            UnfinishedFile::Nameless(file, directory) => {
                let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
                // A new name cannot take the place of an old one, but a name can be changed to it.
                let link = |name: &Path| Ok(linkat(CWD, &*itself, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
                let named = Builder::new().prefix(HIDDEN).make_in(directory, link)?;
                named.persist(path).map(drop).map_err(|error| error.error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn nothing_is_there_before_it_is_whole() {
        // Memory can hold files without a name, whatever the disk can do.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("report");
        let names = || fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        for text in ["first", "second"] {
            let mut file = UnfinishedFile::create(directory.path(), 0o600).unwrap();
            file.file().write_all(text.as_bytes()).unwrap();
            assert!(names().all(|name| name == "report"));
            file.finish(&path).unwrap();
            assert_eq!(names().collect::<Vec<_>>(), ["report"]);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
