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

macro_rules! files {
    ($($name:literal,)*) => {
        /// What Python finds first comes last: it needs the others.
        const FILES: &[PackedFile<'_>] = &[$(($name, include_bytes!(concat!("../../python/", $name))),)*];
    };
}

files! {
    "stepscope_torch/failures.py",
    "stepscope_torch/groups.py",
    "stepscope_torch/hidden.py",
    "stepscope_torch/library.py",
    "stepscope_torch/losses.py",
    "stepscope_torch/loading.py",
    "stepscope_torch/memory.py",
    "stepscope_torch/model.py",
    "stepscope_torch/operators.py",
    "stepscope_torch/passes.py",
    "stepscope_torch/profilers.py",
    "stepscope_torch/sharding.py",
    "stepscope_torch/source.py",
    "stepscope_torch/stacks.py",
    "stepscope_torch/storages.py",
    "stepscope_torch/tokens.py",
    "stepscope_torch/__init__.py",
    "sitecustomize.py",
}

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
            false => Ok(PythonModule { folder: unpack(FILES, folder)? }),
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
    fn every_file_of_the_module_is_unpacked() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/stepscope_torch");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: Vec<String> = files.filter(|name| name.ends_with(".py")).collect();
        let unpacked = |name: &String| FILES.iter().any(|(path, _)| *path == format!("stepscope_torch/{name}"));
        assert_eq!(files.iter().filter(|name| !unpacked(name)).collect::<Vec<_>>(), Vec::<&String>::new());
        assert_eq!(files.len() + 1, FILES.len());
    }

    #[test]
    fn it_comes_before_what_is_there() {
        let folder = Path::new("/cache/python");
        assert_eq!(before(folder, None), "/cache/python");
        assert_eq!(before(folder, Some("".as_ref())), "/cache/python");
        assert_eq!(before(folder, Some("a:b".as_ref())), "/cache/python:a:b");
    }
}
