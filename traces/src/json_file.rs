//! Small JSON files that are whole at every moment.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{error::TraceError, regular_file::open_regular, whole_file};

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
    let draft = whole_file::write_draft(path, &text_of(path, value)?)?;
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
    whole_file::replace(path, &text_of(path, value)?)
}

fn text_of<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, TraceError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|source| TraceError::Json { path: path.to_owned(), source })?;
    text.push(b'\n');
    Ok(text)
}
