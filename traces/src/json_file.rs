//! Small JSON files that are whole at every moment.

use std::{
    fs::{self, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{error::TraceError, regular_file::open_regular};

/// No description of a run is longer.
const LONGEST: u64 = 16 << 20;

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, TraceError> {
    let read = || {
        let mut bytes = Vec::new();
        open_regular(path)?.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(TraceError::io("read", path))?;
    serde_json::from_slice(&bytes).map_err(|source| TraceError::Json { path: path.to_owned(), source })
}

/// Writes a file that must not be there yet; says whether it was not.
pub(crate) fn create<T: Serialize>(path: &Path, value: &T) -> Result<bool, TraceError> {
    let draft = write_draft(path, value)?;
    // A link, unlike a rename, fails when the name is taken. Some file systems have no links.
    let created = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let copy = || {
                let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
                file.write_all(&fs::read(&draft)?)
            };
            copy()
        }
        linked => linked,
    };
    drop(fs::remove_file(&draft));
    match created {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(TraceError::io("write", path)(error)),
    }
}

/// Writes a file in place of the one that is there.
pub(crate) fn replace<T: Serialize>(path: &Path, value: &T) -> Result<(), TraceError> {
    let draft = write_draft(path, value)?;
    fs::rename(&draft, path).map_err(|error| {
        drop(fs::remove_file(&draft));
        TraceError::io("write", path)(error)
    })
}

/// Writes next to the file under a unique name: processes on different hosts may share a process id.
fn write_draft<T: Serialize>(path: &Path, value: &T) -> Result<PathBuf, TraceError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|source| TraceError::Json { path: path.to_owned(), source })?;
    text.push(b'\n');
    let draft = path.with_extension(format!("json.{:016x}", RandomState::new().hash_one(std::process::id())));
    let write = || OpenOptions::new().write(true).create_new(true).open(&draft)?.write_all(&text);
    write().map_err(|error| {
        drop(fs::remove_file(&draft));
        TraceError::io("write", path)(error)
    })?;
    Ok(draft)
}
