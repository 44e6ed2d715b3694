//! Opens what people name, by its content: traces, memory snapshots, directories of those.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read, Seek},
    path::{Path, PathBuf},
};

use super::{
    ImportedRank,
    kineto::{self, Opening},
    rank_name::rank_in_name,
    rank_source::RankSource,
    torch_snapshot::{self, Snapshot},
};
use crate::{
    error::{ImportError, SnapshotError, TraceError},
    ids::Rank,
    rank_info::{RankInfo, State},
    regular_file::open_regular,
    run_info::{self, RunInfo},
};

/// How many files of a directory are looked at.
const MOST_FILES: usize = 1 << 16;

/// How many traces stay open between a look at them and reading: a job may have more ranks than a process may have files.
const MOST_OPEN: usize = 128;

/// How many bytes tell a pickle from the rest.
const HEAD: u64 = 16;

/// A run that another tool recorded.
pub(crate) struct ImportedRun {
    /// What was run.
    pub(crate) info: RunInfo,
    /// Its ranks, in order.
    pub(crate) ranks: Vec<SourceRank>,
}

/// A rank of one.
pub(crate) struct SourceRank {
    /// The file it is read from.
    pub(crate) path: PathBuf,
    /// What is known of it.
    pub(crate) info: RankInfo,
    /// What became of it.
    pub(crate) state: State,
    /// What has its tables.
    pub(crate) source: RankSource,
}

/// Opens traces and snapshots, which may lie in several places, as one run.
pub(crate) fn open(paths: &[&Path]) -> Result<ImportedRun, TraceError> {
    let mut found = Found::default();
    for path in paths {
        found.look_at(path)?;
    }
    found.run(name_of(paths))
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
            let what = "a run directory, which has all of its ranks; name it alone";
            return Err(ImportError::NotATrace { path: path.to_owned(), what }.into());
        }
        let before = self.count();
        for file in files_of(path)? {
            match self.take(&file) {
                // What else is there does not matter.
                Ok(()) | Err(TraceError::Import(ImportError::NotATrace { .. })) => {}
                Err(TraceError::Import(ImportError::Snapshot(
                    SnapshotError::SomethingElse { .. } | SnapshotError::Pickle { .. },
                ))) => {}
                Err(error) => return Err(error),
            }
        }
        if self.count() == before {
            let why = "it has no run.json, and contains no PyTorch trace or memory snapshot";
            return Err(TraceError::NotARun { path: path.to_owned(), why });
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.traces.len() + self.snapshots.len()
    }

    fn take(&mut self, file: &Path) -> Result<(), TraceError> {
        let mut head = Vec::new();
        let mut opened = open_regular(file).map_err(TraceError::io("open", file))?;
        let looked = opened.by_ref().take(HEAD).read_to_end(&mut head).and_then(|_| opened.rewind());
        looked.map_err(TraceError::io("read", file))?;
        if torch_snapshot::may_be_snapshot(&head) {
            self.snapshots.push(Snapshot::read(file, opened)?);
        } else {
            let keep = self.traces.len() < MOST_OPEN;
            self.traces.push(kineto::look_at(file, opened, keep)?);
        }
        Ok(())
    }

    /// The run that all of it is of.
    fn run(self, name: String) -> Result<ImportedRun, TraceError> {
        let mut run = match self.traces.as_slice() {
            [] => ImportedRun { info: torch_snapshot::run_info(name, &self.snapshots), ranks: Vec::new() },
            _ => {
                let (info, ranks) = kineto::run_of(name, self.traces)?;
                let of_trace = |(path, info, trace)| {
                    let source = RankSource::Kineto { trace, memory: None };
                    SourceRank { path, info, state: State::Complete, source }
                };
                ImportedRun { info, ranks: ranks.into_iter().map(of_trace).collect() }
            }
        };
        let mut memory: BTreeMap<Rank, (PathBuf, ImportedRank)> = BTreeMap::new();
        for snapshot in self.snapshots {
            let first = first_rank(&snapshot, &run.ranks)?;
            for rank in snapshot.ranks(first) {
                let (number, other) = (rank.info.rank, snapshot.path.clone());
                if let Some((one, _)) = memory.insert(number, (snapshot.path.clone(), rank)) {
                    return Err(ImportError::SameRank { rank: number, one, other }.into());
                }
            }
        }
        for (number, (path, rank)) in memory {
            match run.ranks.iter_mut().find(|trace| trace.info.rank == number) {
                Some(trace) => trace.source.join(&mut trace.info, rank),
                None => run.ranks.push(SourceRank {
                    path,
                    info: rank.info.clone(),
                    state: rank.state,
                    source: RankSource::Tables(Box::new(rank)),
                }),
            }
        }
        run.ranks.sort_by_key(|rank| rank.info.rank);
        Ok(run)
    }
}

/// The rank of a snapshot: as its file is called, else that of the only trace. Without traces it is the first.
fn first_rank(snapshot: &Snapshot, traces: &[SourceRank]) -> Result<Rank, TraceError> {
    match (rank_in_name(&snapshot.path), traces) {
        (Some(rank), _) => Ok(rank),
        (None, []) => Ok(Rank(0)),
        (None, [only]) => Ok(only.info.rank),
        (None, _) => Err(ImportError::WhoseMemory { path: snapshot.path.clone() }.into()),
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
fn name_of(paths: &[&Path]) -> String {
    let first = paths.first().copied().unwrap_or(Path::new(""));
    let whole = fs::canonicalize(first).unwrap_or_else(|_| first.to_owned());
    let named = if paths.len() > 1 { whole.parent().unwrap_or(&whole) } else { &whole };
    let name = named.file_name().map_or("trace".into(), |name| name.to_string_lossy().into_owned());
    [".gz", ".json", ".trace", ".pt", ".pickle"]
        .iter()
        .fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name))
        .into()
}
