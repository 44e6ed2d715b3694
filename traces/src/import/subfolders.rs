//! Folders in a directory that hold what is read, for those who named the directory around them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    flight_recorder, kineto, recognize, rocprof,
    source::{files_of, is_named_as_trace},
    sqlite, torch_snapshot,
    xplane::{Protobuf, kind_of_protobuf},
};
use crate::regular_file::open_regular;

/// How many folders are looked at, and how many files of each.
const MOST_FOLDERS: usize = 256;
const MOST_FILES: usize = 16;

/// The first folders in a directory, by name, that hold a trace, a profile or a memory snapshot.
pub(crate) fn folders_with_traces(directory: &Path, most: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).take(MOST_FOLDERS).collect();
    folders.sort();
    folders.into_iter().filter(|folder| holds_traces(folder)).take(most).collect()
}

fn holds_traces(folder: &Path) -> bool {
    let files = files_of(folder).unwrap_or_default();
    files.iter().filter(|file| is_named_as_trace(file)).take(MOST_FILES).any(|file| may_be_read(file))
}

/// Whether a file begins as those do that are read.
fn may_be_read(file: &Path) -> bool {
    let Ok(opened) = open_regular(file) else { return false };
    let head = recognize::head_of(&opened);
    flight_recorder::may_be_dump(&head)
        || torch_snapshot::may_be_snapshot(&head)
        || rocprof::may_be_results(&head)
        || head.starts_with(sqlite::MAGIC)
        || kind_of_protobuf(&head) == Some(Protobuf::XSpace)
        || kineto::look_at(file, opened, false).is_ok()
}
