//! The module that says what PyTorch does, for programs in Python: where each of them finds it.
//!
//! It is in a folder of this user's own, named by what is in it. Processes that outlive the run go on to find it there, and
//! nobody else can put anything in its place.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::Command,
};

use stepscope_traces::open_regular;

use crate::cache;

const VARIABLE: &str = "PYTHONPATH";
/// Stands between the folders of a path, and so in none of them.
const SEPARATOR: char = ':';

/// What Python finds first comes last: it needs the others.
const FILES: [(&str, &str); 4] = [
    ("stepscope_torch/storages.py", include_str!("../../python/stepscope_torch/storages.py")),
    ("stepscope_torch/library.py", include_str!("../../python/stepscope_torch/library.py")),
    ("stepscope_torch/__init__.py", include_str!("../../python/stepscope_torch/__init__.py")),
    ("sitecustomize.py", include_str!("../../python/sitecustomize.py")),
];

/// The module, as files.
#[derive(Debug)]
pub struct PythonModule {
    folder: PathBuf,
}

impl PythonModule {
    /// Unpacks it, unless it is there.
    pub fn unpack() -> io::Result<PythonModule> {
        PythonModule::unpack_into(&cache::folder("python", |path| !path.to_string_lossy().contains(SEPARATOR))?)
    }

    fn unpack_into(parent: &Path) -> io::Result<PythonModule> {
        let mut hasher = DefaultHasher::new();
        FILES.hash(&mut hasher);
        let folder = parent.join(format!("{:016x}", hasher.finish()));
        for (name, text) in FILES {
            let file = folder.join(name);
            let within: Vec<&Path> = file.ancestors().skip(1).take_while(|path| *path != parent).collect();
            within.into_iter().rev().try_for_each(cache::make_private)?;
            put(&file, text)?;
        }
        Ok(PythonModule { folder })
    }

    /// Has it found by each process of a command that is Python.
    pub fn apply(&self, command: &mut Command) {
        command.env(VARIABLE, before(&self.folder, env::var_os(VARIABLE).as_deref()));
    }
}

/// Has a file say a text. It says that at every moment from then on, also where several processes do this at once.
fn put(file: &Path, text: &str) -> io::Result<()> {
    let mut there = Vec::new();
    let longest = text.len() as u64 + 1;
    if open_regular(file).and_then(|opened| opened.take(longest).read_to_end(&mut there)).is_ok()
        && there == text.as_bytes()
    {
        return Ok(());
    }
    let draft = file.with_extension(format!("{:016x}", RandomState::new().hash_one(std::process::id())));
    let written = File::create_new(&draft)?.write_all(text.as_bytes());
    written.and_then(|()| fs::rename(&draft, file)).inspect_err(|_| drop(fs::remove_file(&draft)))
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
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn it_comes_before_what_is_there() {
        let folder = Path::new("/cache/python");
        assert_eq!(before(folder, None), "/cache/python");
        assert_eq!(before(folder, Some("".as_ref())), "/cache/python");
        assert_eq!(before(folder, Some("a:b".as_ref())), "/cache/python:a:b");
    }

    #[test]
    fn it_is_unpacked_once_and_mended_where_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let folder = PythonModule::unpack_into(directory.path()).unwrap().folder;
        let entry = folder.join("sitecustomize.py");
        let made = entry.metadata().unwrap().modified().unwrap();
        assert_eq!(PythonModule::unpack_into(directory.path()).unwrap().folder, folder);
        assert_eq!(entry.metadata().unwrap().modified().unwrap(), made, "it was there");
        // A link, whatever it leads to, is replaced and not written through.
        let victim = directory.path().join("victim");
        fs::write(&victim, "somebody's").unwrap();
        fs::remove_file(&entry).unwrap();
        symlink(&victim, &entry).unwrap();
        fs::write(folder.join("stepscope_torch/library.py"), "half").unwrap();
        PythonModule::unpack_into(directory.path()).unwrap();
        for (name, text) in FILES {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "somebody's");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no drafts are left");
    }
}
