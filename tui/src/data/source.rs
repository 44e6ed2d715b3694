//! What is looked at.

use std::path::{Path, PathBuf};

use stepscope_traces::{Run, RunInfo, Segment, State, TraceError};

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

/// A run that may be looked at instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunChoice {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// When it began, in RFC 3339.
    pub(crate) started: String,
    /// Steps that it is to make, where it says so.
    pub(crate) planned_steps: Option<u64>,
    /// What became of it, once somebody has looked.
    pub(crate) state: Option<State>,
}

impl Source {
    /// What somebody named; of a folder of runs, the newest of them.
    pub fn named(paths: Vec<PathBuf>) -> Source {
        match &paths[..] {
            [folder] if newest_in(&paths).is_some() => Source::Newest { under: folder.clone() },
            _ => Source::Named(paths),
        }
    }

    /// The runs in its folder, the newest first; none beside what another tool recorded.
    pub(crate) fn runs(&self) -> Vec<RunChoice> {
        let folder = match self {
            Source::Newest { under } => Some(under.as_path()),
            Source::Named(paths) => match &paths[..] {
                [run] if is_run(run) => run.parent(),
                _ => None,
            },
        };
        let here = |folder: &Path| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() };
        let runs = folder.map_or_else(Vec::new, |folder| Run::all_under(&here(folder)));
        let choice = |(path, info): (PathBuf, RunInfo)| RunChoice {
            planned_steps: info.planned_steps(),
            path,
            name: info.name,
            started: info.started,
            state: None,
        };
        runs.into_iter().map(choice).collect()
    }

    /// Opens it; nothing where it is not there yet.
    pub(crate) fn open(&self) -> Result<Option<Run>, TraceError> {
        let opened = match self {
            Source::Newest { under } => match Run::newest_under(under) {
                Some(newest) => Run::open(&newest),
                None => return Ok(None),
            },
            Source::Named(paths) => match newest_in(paths) {
                Some(newest) => Run::open(&newest),
                None => Run::of_sources(paths),
            },
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
            // A folder may have been named before there was a run in it.
            Source::Named(paths) if newest_in(paths).is_none() => paths.clone(),
            _ => vec![run.to_owned()],
        }
    }

    /// What is waited for, in words.
    pub(crate) fn words(&self) -> String {
        match self {
            Source::Newest { under } => format!("a run under {}/", under.display()),
            Source::Named(paths) => {
                let named = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
                if paths.iter().all(|path| path.is_dir()) { format!("a run in {named}") } else { named }
            }
        }
    }
}

fn is_run(path: &Path) -> bool {
    path.join("run.json").exists() || !Segment::all_of(path).is_empty()
}

/// The newest run in a folder that somebody named.
fn newest_in(paths: &[PathBuf]) -> Option<PathBuf> {
    match paths {
        [folder] if !is_run(folder) => Run::newest_under(folder),
        _ => None,
    }
}

/// Whether nothing is there yet, or only the directory of a run that begins.
fn is_empty(path: &Path) -> bool {
    let has_nothing = |path: PathBuf| path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    path.read_dir().is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| has_nothing(entry.path()))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_waited_in_until_there_is_a_run() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("runs");
        let source = Source::named(vec![folder.clone()]);
        assert!(source.open().unwrap().is_none(), "it is not there");
        assert_eq!(source.words(), folder.display().to_string());
        let run = folder.join("first");
        fs::create_dir_all(&run).unwrap();
        assert!(source.open().unwrap().is_none(), "nothing is in it yet");
        assert_eq!(source.words(), format!("a run in {}", folder.display()));
        RunInfo::of_this_process("tiny").create(&run).unwrap();
        let opened = source.open().unwrap().unwrap();
        assert_eq!((&opened.path, source.files(&opened.path)), (&run, vec![run.clone()]));
        fs::write(directory.path().join("notes.txt"), "nothing of ours").unwrap();
        let other = Source::named(vec![directory.path().join("notes.txt")]);
        assert!(other.open().is_err(), "what is no run is told");
    }
}
