//! Small files that are left in a run for the processes of its job, whole at every moment.

use std::{
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use stepscope_traces::open_regular;

/// None is longer.
const LONGEST: u64 = 4096;

/// Leaves something in a run, in place of what was left before.
pub(super) fn leave(what: &impl Serialize, run: &Path, file: &str) -> io::Result<()> {
    let draft = draft(what, run, file)?;
    fs::rename(&draft, run.join(file)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Leaves something in a run where nothing was left before; tells whether that was so.
pub(super) fn leave_first(what: &impl Serialize, run: &Path, file: &str) -> io::Result<bool> {
    let draft = draft(what, run, file)?;
    let linked = fs::hard_link(&draft, run.join(file));
    fs::remove_file(&draft)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // Some file systems have no such links: then whoever makes the file is first.
        Err(_) => match File::create_new(run.join(file)) {
            Ok(mut made) => made.write_all(&serde_json::to_vec(what)?).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
    }
}

fn draft(what: &impl Serialize, run: &Path, file: &str) -> io::Result<PathBuf> {
    let draft = run.join(format!("{file}.{:016x}", RandomState::new().hash_one(std::process::id())));
    let written = File::create_new(&draft)?.write_all(&serde_json::to_vec(what)?);
    written.map(|()| draft.clone()).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// What was left in a run. What cannot be understood was not.
pub(super) fn find<T: DeserializeOwned>(run: &Path, file: &str) -> Option<T> {
    let mut text = Vec::new();
    open_regular(&run.join(file)).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_first_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        assert_eq!(find::<u32>(run, "it"), None);
        assert!(leave_first(&1, run, "it").unwrap());
        assert!(!leave_first(&2, run, "it").unwrap());
        assert_eq!(find(run, "it"), Some(1));
        leave(&3, run, "it").unwrap();
        assert_eq!(find(run, "it"), Some(3));
        assert_eq!(fs::read_dir(run).unwrap().count(), 1);
    }
}
