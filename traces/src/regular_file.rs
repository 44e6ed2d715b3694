//! How files that others may have put in place are opened.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::fcntl::OFlag;

/// Opens a file to read it. A pipe or a device in its place is refused instead of waited for.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    refuse_special(file)
}

/// Opens a file to hold a lock on it, and makes it if need be. It is not followed if it is a link, nor waited for if it is
/// a pipe.
pub fn open_lock_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags.bits()).open(path)?;
    refuse_special(file)
}

fn refuse_special(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn pipes_are_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(open_regular(&pipe).is_err());
        assert!(open_lock_file(&pipe).is_err());
        assert!(open_regular(directory.path()).is_err());
    }

    #[test]
    fn a_lock_file_is_not_somebody_elses_behind_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        symlink(&target, &link).unwrap();
        assert!(open_lock_file(&link).is_err());
        assert!(!target.exists());
        fs::write(&target, "kept").unwrap();
        drop(open_lock_file(&target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }
}
