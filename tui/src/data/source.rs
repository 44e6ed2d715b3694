//! What is looked at.

use std::path::{Path, PathBuf};

use stepscope_traces::{Run, TraceError};

/// What is looked at.
#[derive(Clone, Debug)]
pub enum Source {
    /// The newest run under a directory.
    Newest {
        /// The directory.
        under: PathBuf,
    },
    /// A run directory, or traces and memory snapshots of PyTorch's.
    Named(Vec<PathBuf>),
}

impl Source {
    /// Opens it; nothing where it is not there yet.
    pub(crate) fn open(&self) -> Result<Option<Run>, TraceError> {
        let opened = match self {
            Source::Newest { under } => match Run::newest_under(under) {
                Some(newest) => Run::open(&newest),
                None => return Ok(None),
            },
            Source::Named(paths) => Run::of_sources(paths),
        };
        match opened {
            Ok(run) => Ok(Some(run)),
            Err(TraceError::Missing { .. }) => Ok(None),
            // A directory may be there before what makes it a run.
            Err(TraceError::NotARun { path, .. }) if is_empty(&path) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What to open, to open the same run again.
    pub(crate) fn files(&self, run: &Path) -> Vec<PathBuf> {
        match self {
            Source::Newest { .. } => vec![run.to_owned()],
            Source::Named(paths) => paths.clone(),
        }
    }

    /// What is waited for, in words.
    pub(crate) fn words(&self) -> String {
        match self {
            Source::Newest { under } => format!("a run under {}/", under.display()),
            Source::Named(paths) => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    }
}

fn is_empty(path: &Path) -> bool {
    path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}
