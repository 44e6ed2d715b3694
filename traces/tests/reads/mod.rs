//! Reads bytes as if they were a file of somebody's.

use std::{fs, path::Path};

use stepscope_traces::{Run, Window};
use tempfile::TempDir;

/// Reads files of one name.
pub(crate) struct Reads {
    directory: TempDir,
    name: &'static str,
}

impl Reads {
    pub(crate) fn named(name: &'static str) -> Reads {
        Reads { directory: tempfile::tempdir().unwrap(), name }
    }

    /// Whether there is something to read in these bytes; all of it is.
    pub(crate) fn read(&self, bytes: &[u8]) -> bool {
        let path = self.directory.path().join(self.name);
        fs::write(&path, bytes).unwrap();
        all_of(&path)
    }
}

fn all_of(path: &Path) -> bool {
    let Ok(run) = Run::of_source(path) else { return false };
    run.ranks.iter().all(|rank| rank.read(Window::ALL).is_ok())
}
