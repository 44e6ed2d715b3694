//! Opens what people name, by its content: a run directory, traces, memory snapshots.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use super::{
    ImportedRank,
    kineto::{self, Opening},
    rank_name::rank_in_name,
    torch_snapshot::{self, Snapshot, SnapshotError},
};
use crate::{
    error::TraceError,
    ids::Rank,
    reader::{RankDirectory, Run},
    regular_file::open_regular,
    run_info,
};

/// How many files of a directory are looked at.
const MOST_FILES: usize = 1 << 16;

/// How many bytes tell a pickle from the rest.
const HEAD: u64 = 16;

impl Run {
    /// Opens what people name as a source, by its content: a run directory, a trace of PyTorch's profiler, a memory
    /// snapshot of PyTorch's, or a directory of those.
    pub fn of_source(path: &Path) -> Result<Run, TraceError> {
        Run::of_sources(&[path])
    }

    /// As [`Run::of_source`], but traces and snapshots may lie in several places. A snapshot of a rank that has a trace
    /// gives it its memory.
    pub fn of_sources(paths: &[impl AsRef<Path>]) -> Result<Run, TraceError> {
        if let [path] = paths {
            let path = path.as_ref();
            // For what is not there, it knows the words.
            if path.join(run_info::FILE).exists() || path.metadata().is_err() {
                return Run::open(path);
            }
        }
        let mut found = Found::default();
        for path in paths.iter().map(AsRef::as_ref) {
            found.look_at(path)?;
        }
        found.run(paths.first().map_or(Path::new(""), AsRef::as_ref), name_of(paths))
    }
}

/// What some sources have in them.
#[derive(Default)]
struct Found {
    traces: Vec<Opening>,
    snapshots: Vec<Snapshot>,
}

impl Found {
    /// Takes a file, or all files of a directory.
    fn look_at(&mut self, path: &Path) -> Result<(), TraceError> {
        let metadata = path.metadata().map_err(|error| match error.kind() {
            ErrorKind::NotFound => TraceError::Missing { path: path.to_owned() },
            _ => TraceError::io("open", path)(error),
        })?;
        if !metadata.is_dir() {
            return self.take(path);
        }
        if path.join(run_info::FILE).exists() {
            let what = "a run directory, which has all its ranks; it is looked at alone";
            return Err(TraceError::NotATrace { path: path.to_owned(), what });
        }
        let before = self.count();
        for file in files_of(path)? {
            match self.take(&file) {
                // What else is there does not matter.
                Ok(()) | Err(TraceError::NotATrace { .. }) => {}
                Err(TraceError::Snapshot(SnapshotError::SomethingElse { .. } | SnapshotError::Pickle { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        if self.count() == before {
            let why = "it has no run.json, and nothing in it is a PyTorch trace or memory snapshot";
            return Err(TraceError::NotARun { path: path.to_owned(), why });
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.traces.len() + self.snapshots.len()
    }

    fn take(&mut self, file: &Path) -> Result<(), TraceError> {
        let mut head = Vec::new();
        let opened = open_regular(file).map_err(TraceError::io("open", file))?;
        opened.take(HEAD).read_to_end(&mut head).map_err(TraceError::io("read", file))?;
        if torch_snapshot::may_be_snapshot(&head) {
            self.snapshots.push(Snapshot::read(file)?);
        } else {
            self.traces.push(kineto::look_at(file)?);
        }
        Ok(())
    }

    /// The run that all of it is of.
    fn run(self, path: &Path, name: String) -> Result<Run, TraceError> {
        let mut run = match self.traces.as_slice() {
            [] => {
                Run { path: path.to_owned(), info: torch_snapshot::run_info(name, &self.snapshots), ranks: Vec::new() }
            }
            _ => kineto::run_of(path, name, self.traces)?,
        };
        let mut memory: BTreeMap<Rank, (PathBuf, ImportedRank)> = BTreeMap::new();
        for snapshot in self.snapshots {
            let first = first_rank(&snapshot, &run.ranks)?;
            for rank in snapshot.ranks(first) {
                let (number, other) = (rank.info.rank, snapshot.path.clone());
                if let Some((one, _)) = memory.insert(number, (snapshot.path.clone(), rank)) {
                    return Err(TraceError::SameRank { rank: number, one, other });
                }
            }
        }
        for (number, (path, rank)) in memory {
            match run.ranks.iter_mut().find(|trace| trace.info.rank == number) {
                Some(trace) => trace.join(rank),
                None => run.ranks.push(RankDirectory::of_tables(path, rank)),
            }
        }
        run.ranks.sort_by_key(|rank| rank.info.rank);
        Ok(run)
    }
}

/// The rank of a snapshot: as its file is called, else that of the only trace. Without traces it is the first.
fn first_rank(snapshot: &Snapshot, traces: &[RankDirectory]) -> Result<Rank, TraceError> {
    match (rank_in_name(&snapshot.path), traces) {
        (Some(rank), _) => Ok(rank),
        (None, []) => Ok(Rank(0)),
        (None, [only]) => Ok(only.info.rank),
        (None, _) => Err(TraceError::WhoseMemory { path: snapshot.path.clone() }),
    }
}

/// The files of a directory, by name.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(TraceError::io("list", directory))?.take(MOST_FILES) {
        let file = entry.map_err(TraceError::io("list", directory))?.path();
        files.extend(Some(file).filter(|file| file.is_file()));
    }
    files.sort();
    Ok(files)
}

/// What people call it: the name of the file or directory, without its endings; of several, of the directory of the first.
fn name_of(paths: &[impl AsRef<Path>]) -> String {
    let first = paths.first().map_or(Path::new(""), AsRef::as_ref);
    let whole = fs::canonicalize(first).unwrap_or_else(|_| first.to_owned());
    let named = if paths.len() > 1 { whole.parent().unwrap_or(&whole) } else { &whole };
    let name = named.file_name().map_or("trace".into(), |name| name.to_string_lossy().into_owned());
    [".gz", ".json", ".trace", ".pt", ".pickle"]
        .iter()
        .fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name))
        .into()
}
