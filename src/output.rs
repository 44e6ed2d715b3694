//! Where a result goes: to stdout, or to a file that is there only when it is whole.

mod access;
mod unfinished;
mod whole_directory;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use anyhow::Result;

use self::unfinished::UnfinishedFile;
pub(crate) use self::whole_directory::WholeDirectory;
use crate::{failure::WithHint, object_storage, terminal};

/// How names begin that a file or a directory has before its own.
const HIDDEN: &str = ".stepscope-";

/// Where a result goes.
pub(crate) enum Output {
    /// To stdout, with colors where it is a terminal.
    Stdout,
    /// To a new file, which takes the place of an old one.
    Whole(UnfinishedFile, PathBuf),
    /// To what is there and is no plain file: a device or a pipe.
    Special(File, PathBuf),
}

impl Output {
    /// Opens a file, so that what is in its way is known before any work is done; stdout, if none is named.
    pub(crate) fn open(path: Option<&Path>) -> Result<Output> {
        let Some(path) = path else { return Ok(Output::Stdout) };
        object_storage::refuse(Some(path), "--output", "write a file, and copy it there with the tools of the store")?;
        let cannot = || format!("cannot write {}", path.display());
        // What a link points to is written, not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let there = fs::metadata(&target).ok();
        if there.as_ref().is_some_and(|there| there.is_dir()) {
            anyhow::bail!("{}: it is a directory", cannot());
        }
        // What may not be written is not replaced either.
        let open = || File::options().write(true).open(&target).map_err(|error| because(cannot(), &error));
        let old = there.as_ref().map(|_| open()).transpose()?;
        let old = match old {
            Some(special) if there.is_some_and(|there| !there.is_file()) => {
                return Ok(Output::Special(special, target));
            }
            old => old,
        };
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.exists() {
            let what = format!("{}: directory {} does not exist", cannot(), directory.display());
            return Err(WithHint { what, hint: format!("create it with mkdir -p {}", directory.display()) }.into());
        }
        // The usual permissions, or none for others until it has those of the file that it replaces.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut file = UnfinishedFile::create(directory, mode).map_err(|error| because(cannot(), &error))?;
        if let Some(old) = &old {
            access::keep(old, file.file()).map_err(|error| because(cannot(), &error))?;
        }
        Ok(Output::Whole(file, target))
    }

    /// How wide a text report may be here.
    pub(crate) fn columns(&self) -> usize {
        match self {
            Output::Stdout => terminal::columns(),
            Output::Whole(..) | Output::Special(..) => terminal::COLUMNS,
        }
    }

    /// Writes all of it. A file is in its place after that, and not before.
    pub(crate) fn write(self, text: &str) -> Result<()> {
        match self {
            Output::Stdout => {
                let mut stdout = anstream::stdout().lock();
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(of_stdout)
            }
            _ => self.write_plain(|to| write!(to, "{}", anstream::adapter::strip_str(text))),
        }
    }

    /// Writes what has no colors, as it comes. A file is in its place after that, and not before.
    pub(crate) fn write_plain(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let write_to = |to: &mut dyn Write| {
            let mut to = BufWriter::new(to);
            write(&mut to)?;
            to.flush()
        };
        let cannot = |path: &Path| format!("cannot write {}", path.display());
        match self {
            Output::Stdout => write_to(&mut io::stdout().lock()).map_err(of_stdout),
            Output::Whole(mut file, path) => {
                write_to(file.file()).map_err(|error| because(cannot(&path), &error))?;
                file.finish(&path).map_err(|error| because(cannot(&path), &error))
            }
            Output::Special(mut file, path) => write_to(&mut file).map_err(|error| because(cannot(&path), &error)),
        }
    }
}

/// Why nothing more could be written to stdout.
fn of_stdout(error: io::Error) -> anyhow::Error {
    match error.kind() {
        // Whoever reads has read enough.
        io::ErrorKind::BrokenPipe => error.into(),
        _ => because("cannot write".into(), &error),
    }
}

impl Output {
    /// Writes what `write` leaves in a file, which is empty before. A file is in its place after that, and not before.
    pub(crate) fn write_file<T>(self, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
        let cannot = |path: &Path| format!("cannot write {}", path.display());
        let mut special: (Box<dyn Write>, String) = match self {
            Output::Whole(mut file, path) => {
                let outcome = write(file.file()).map_err(|error| match error.downcast_ref::<io::Error>() {
                    Some(why) => because(cannot(&path), why),
                    None => error,
                })?;
                file.finish(&path).map_err(|error| because(cannot(&path), &error))?;
                return Ok(outcome);
            }
            Output::Stdout => (Box::new(io::stdout().lock()), "cannot write".into()),
            Output::Special(file, path) => (Box::new(file), cannot(&path)),
        };
        let mut file =
            tempfile::tempfile().map_err(|error| because("cannot create a temporary file".into(), &error))?;
        let outcome = write(&mut file)?;
        file.rewind()?;
        match io::copy(&mut file, &mut special.0).and_then(|_| special.0.flush()) {
            Ok(()) => Ok(outcome),
            // Whoever reads has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error.into()),
            Err(error) => Err(because(special.1, &error)),
        }
    }
}

/// Each error says why, since its chain is not shown. Where it is about a temporary file, that one's name says nothing.
fn because(what: String, why: &io::Error) -> anyhow::Error {
    match why.raw_os_error() {
        Some(code) => anyhow::anyhow!("{what}: {}", io::Error::from_raw_os_error(code)),
        None => {
            let why =
                why.get_ref().and_then(|inner| inner.source()).map_or_else(|| why.to_string(), ToString::to_string);
            anyhow::anyhow!("{what}: {}", why.rsplit_once(" at path ").map_or(&*why, |(said, _)| said))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{MetadataExt, PermissionsExt},
    };

    use super::*;

    #[test]
    fn a_file_that_is_there_keeps_who_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        for kept in [0o600, 0o640, 0o666, 0o750] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            Output::open(Some(&path)).unwrap().write("new").unwrap();
            assert_eq!((mode(), fs::read_to_string(&path).unwrap().as_str()), (kept, "new"), "{kept:o}");
        }
        // Only root may give files away.
        if directory.path().metadata().unwrap().uid() == 0 {
            std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
            Output::open(Some(&path)).unwrap().write("new").unwrap();
            let there = path.metadata().unwrap();
            assert_eq!((there.uid(), there.gid(), mode()), (12, 34, 0o750));
        } else {
            fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
            assert!(Output::open(Some(&path)).is_err(), "one may not write it");
        }
    }

    #[test]
    fn what_cannot_be_written_is_named_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let full = |_: &mut File| -> Result<()> { Err(io::Error::from_raw_os_error(28).into()) };
        let error = Output::open(Some(&path)).unwrap().write_file(full).unwrap_err().to_string();
        assert_eq!(error, format!("cannot write {}: No space left on device (os error 28)", path.display()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let Err(error) = Output::open(Some(Path::new("/proc/trace"))) else { panic!("no files are made there") };
        assert!(!error.to_string().contains(HIDDEN), "{error}");
    }
}
