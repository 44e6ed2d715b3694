//! A directory that is there only when all is in it. Until then it is a hidden one beside its place, which goes if the program
//! fails, or is interrupted.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Result, anyhow};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    low_level::emulate_default_handler,
};
use tempfile::{Builder, TempDir};

use super::{HIDDEN, access, because};
use crate::{failure::WithHint, object_storage};

/// A directory that is still being filled.
pub(crate) struct WholeDirectory {
    hidden: TempDir,
    target: PathBuf,
    /// Which signal wants the program to end; 0, if none does.
    signal: Arc<AtomicUsize>,
}

impl WholeDirectory {
    /// Checks that a directory can be made, so that what is in its way is known before any work is done. One that is there
    /// must be empty: nothing of others is replaced.
    pub(crate) fn check(path: &Path) -> Result<PathBuf> {
        object_storage::refuse(
            Some(path),
            "--output",
            "write a directory, and copy it there with the tools of the store",
        )?;
        let cannot = |why: &str| format!("cannot write {}: {why}", path.display());
        let another = |why: &str| WithHint { what: cannot(why), hint: "name a directory that is new or empty".into() };
        // What a link points to is written, not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::read_dir(&target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(another("it is not empty").into());
                }
                if std::env::current_dir().is_ok_and(|here| here == target) {
                    return Err(another("it is the current directory").into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(another("it is a file, and tables are a directory").into());
            }
            Err(error) => return Err(because(cannot("it cannot be listed"), &error)),
        }
        let parent = parent(&target);
        if !parent.is_dir() {
            let hint = format!("create it with mkdir -p {}", parent.display());
            return Err(
                WithHint { what: cannot(&format!("directory {} does not exist", parent.display())), hint }.into()
            );
        }
        Ok(target)
    }

    /// Begins one that was checked. From now on whoever fills it asks now and then whether to end.
    pub(crate) fn begin(target: PathBuf) -> Result<WholeDirectory> {
        let cannot = |error: io::Error| because(format!("cannot write {}", target.display()), &error);
        let mut builder = Builder::new();
        builder.prefix(HIDDEN).permissions(Permissions::from_mode(0o777));
        let hidden = builder.tempdir_in(parent(&target)).map_err(cannot)?;
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(number, signal.clone(), number as usize).map_err(cannot)?;
        }
        Ok(WholeDirectory { hidden, target, signal })
    }

    /// Where files go.
    pub(crate) fn path(&self) -> &Path {
        self.hidden.path()
    }

    /// How large everything in it is.
    pub(crate) fn bytes(&self) -> u64 {
        fn bytes_of(folder: &Path) -> u64 {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let size = |entry: fs::DirEntry| match entry.metadata() {
                Ok(there) if there.is_dir() => bytes_of(&entry.path()),
                there => there.map_or(0, |there| there.len()),
            };
            entries.map(size).sum()
        }
        bytes_of(self.path())
    }

    /// Ends the program if a signal wants that, and leaves nothing behind.
    pub(crate) fn end_if_interrupted(&self) {
        let signal = self.signal.load(Ordering::Relaxed);
        if signal != 0 {
            // What cannot be removed is in nobody's way.
            drop(fs::remove_dir_all(self.path()));
            drop(emulate_default_handler(signal as i32));
        }
    }

    /// Gives it its name.
    pub(crate) fn finish(self) -> Result<()> {
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => {
                anyhow!("cannot write {}: somebody else has written there meanwhile", self.target.display())
            }
            _ => because(format!("cannot write {}", self.target.display()), &error),
        };
        if let Ok(old) = File::open(&self.target) {
            File::open(self.hidden.path()).and_then(|new| access::keep(&old, &new)).map_err(cannot)?;
        }
        // An empty directory gives way, and any other one stays.
        fs::rename(self.hidden.path(), &self.target).map_err(cannot)?;
        // It is not to be removed any more.
        let _ = self.hidden.keep();
        Ok(())
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path) -> Result<()> {
        let directory = WholeDirectory::begin(WholeDirectory::check(path)?)?;
        fs::write(directory.path().join("file"), "new")?;
        directory.finish()
    }

    #[test]
    fn it_is_there_when_it_is_whole_and_takes_nobodys_place() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("tables");
        let unfinished = WholeDirectory::begin(WholeDirectory::check(&path).unwrap()).unwrap();
        fs::write(unfinished.path().join("file"), "old").unwrap();
        assert!(!path.exists());
        drop(unfinished);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left");
        write(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new");
        let refused = write(&path).unwrap_err().to_string();
        assert!(refused.ends_with("it is not empty"), "{refused}");
        let refused = write(&path.join("file")).unwrap_err().to_string();
        assert!(refused.contains("it is a file"), "{refused}");
        let refused = write(&parent.path().join("no/where")).unwrap_err().to_string();
        assert!(refused.ends_with("does not exist"), "{refused}");
    }

    #[test]
    fn an_empty_one_keeps_its_access_and_what_came_meanwhile_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("tables");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        let other = parent.path().join("other");
        let directory = WholeDirectory::begin(WholeDirectory::check(&other).unwrap()).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("notes"), "theirs").unwrap();
        let refused = directory.finish().unwrap_err().to_string();
        assert!(refused.ends_with("meanwhile"), "{refused}");
        assert_eq!(fs::read_to_string(other.join("notes")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2, "nothing else is left");
    }
}
