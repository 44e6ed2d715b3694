//! The module that says what PyTorch does, for programs in Python: where each of them finds it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Where in a run it is while the program runs.
const FOLDER: &str = "python";
const VARIABLE: &str = "PYTHONPATH";

const FILES: [(&str, &str); 4] = [
    ("sitecustomize.py", include_str!("../../python/sitecustomize.py")),
    ("stepscope_torch/__init__.py", include_str!("../../python/stepscope_torch/__init__.py")),
    ("stepscope_torch/library.py", include_str!("../../python/stepscope_torch/library.py")),
    ("stepscope_torch/storages.py", include_str!("../../python/stepscope_torch/storages.py")),
];

/// The module, in a run; goes with this.
#[derive(Debug)]
pub struct PythonModule {
    folder: PathBuf,
}

impl PythonModule {
    /// Puts it into a run.
    pub fn put_into(run: &Path) -> io::Result<PythonModule> {
        let module = PythonModule { folder: run.join(FOLDER) };
        for (name, text) in FILES {
            let file = module.folder.join(name);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&file, text)?;
        }
        Ok(module)
    }

    /// Has it found by each process of a command that is Python.
    pub fn apply(&self, command: &mut Command) {
        command.env(VARIABLE, before(&self.folder, env::var_os(VARIABLE).as_deref()));
    }
}

impl Drop for PythonModule {
    fn drop(&mut self) {
        // What is left of it is in nobody's way.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A path with a folder before the others. An empty place in it would stand for wherever the program is.
fn before(folder: &Path, others: Option<&OsStr>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_before_what_is_there() {
        let folder = Path::new("/run/python");
        assert_eq!(before(folder, None), "/run/python");
        assert_eq!(before(folder, Some("".as_ref())), "/run/python");
        assert_eq!(before(folder, Some("a:b".as_ref())), "/run/python:a:b");
    }

    #[test]
    fn it_is_there_while_the_program_runs() {
        let directory = tempfile::tempdir().unwrap();
        let module = PythonModule::put_into(directory.path()).unwrap();
        assert!(directory.path().join("python/stepscope_torch/storages.py").exists());
        drop(module);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
