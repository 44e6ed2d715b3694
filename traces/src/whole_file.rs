//! Small files that are whole at every moment.

use std::{
    fs::{self, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::Write,
    path::{Path, PathBuf},
};

use crate::error::TraceError;

/// Writes a file in place of the one that is there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), TraceError> {
    let draft = write_draft(path, bytes)?;
    fs::rename(&draft, path).map_err(|error| {
        drop(fs::remove_file(&draft));
        TraceError::io("write", path)(error)
    })
}

/// Writes next to the file under a unique name: processes on different hosts may share a process id.
pub(crate) fn write_draft(path: &Path, bytes: &[u8]) -> Result<PathBuf, TraceError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{:016x}", RandomState::new().hash_one(std::process::id())));
    let draft = PathBuf::from(draft);
    let write = || OpenOptions::new().write(true).create_new(true).open(&draft)?.write_all(bytes);
    write().map_err(|error| {
        drop(fs::remove_file(&draft));
        TraceError::io("write", path)(error)
    })?;
    Ok(draft)
}
