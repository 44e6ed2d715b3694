//! The module that says what PyTorch does, for programs in Python: how each of them finds it.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::unpacked::{PackedFile, unpack};
use crate::cache;

const VARIABLE: &str = "PYTHONPATH";
/// Stands between the folders of a path, and so in none of them.
const SEPARATOR: char = ':';

/// What Python finds first comes last: it needs the others.
const FILES: [PackedFile<'_>; 5] = [
    ("stepscope_torch/storages.py", include_bytes!("../../python/stepscope_torch/storages.py")),
    ("stepscope_torch/profilers.py", include_bytes!("../../python/stepscope_torch/profilers.py")),
    ("stepscope_torch/library.py", include_bytes!("../../python/stepscope_torch/library.py")),
    ("stepscope_torch/__init__.py", include_bytes!("../../python/stepscope_torch/__init__.py")),
    ("sitecustomize.py", include_bytes!("../../python/sitecustomize.py")),
];

/// The module, as files.
#[derive(Debug)]
pub struct PythonModule {
    folder: PathBuf,
}

impl PythonModule {
    /// Unpacks it, unless it is there.
    pub fn unpack() -> io::Result<PythonModule> {
        let unpacked = |folder: &Path| match folder.to_string_lossy().contains(SEPARATOR) {
            true => Err(io::Error::other("its path has a colon")),
            false => Ok(PythonModule { folder: unpack(&FILES, folder)? }),
        };
        cache::in_folder("python", unpacked)
    }

    /// Has it found by each process of a command that is Python.
    pub fn apply(&self, command: &mut Command) {
        command.env(VARIABLE, before(&self.folder, env::var_os(VARIABLE).as_deref()));
    }
}

/// A path with a folder before the others. An empty place in it would stand for wherever the program is.
fn before(folder: &Path, others: Option<&OsStr>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(SEPARATOR.to_string());
        path.push(others);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_before_what_is_there() {
        let folder = Path::new("/cache/python");
        assert_eq!(before(folder, None), "/cache/python");
        assert_eq!(before(folder, Some("".as_ref())), "/cache/python");
        assert_eq!(before(folder, Some("a:b".as_ref())), "/cache/python:a:b");
    }
}
