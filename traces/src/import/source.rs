//! Opens what people name, by its content: traces, memory snapshots, databases of profilers, directories of those.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use stepscope_plan::text;

use super::{
    ImportedRank, flight_recorder,
    kineto::{self, Opening},
    nsys,
    rank_name::rank_in_name,
    rank_source::RankSource,
    recognize,
    rocprof::{self, rocpd},
    sqlite::{self, Database},
    tool_run::ToolRun,
    torch_snapshot::{self, Snapshot},
    unpacked,
    xplane::{self, Protobuf, kind_of_protobuf},
};
use crate::{
    error::{ImportError, SnapshotError, TraceError},
    ids::Rank,
    rank_info::{RankInfo, State, groups_told},
    regular_file::open_regular,
    run_info::{self, RunInfo},
};

/// How many files of a directory are looked at.
const MOST_FILES: usize = 1 << 16;

/// Of how many files that are not read it is said why, where none is.
const MOST_TOLD: usize = 8;

/// How many traces stay open between a look at them and reading: a job may have more ranks than a process may have files.
const MOST_OPEN: usize = 128;

/// A run that another tool recorded.
pub(crate) struct ImportedRun {
    /// What was run.
    pub(crate) info: RunInfo,
    /// Its ranks, in order.
    pub(crate) ranks: Vec<SourceRank>,
    /// Why files of its directory are not read, though they are named as if they could be.
    pub(crate) passed_over: Vec<TraceError>,
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
    let passed_over = std::mem::take(&mut found.passed_over);
    Ok(ImportedRun { passed_over, ..found.run(name_of(paths))? })
}

/// What some sources have in them.
#[derive(Default)]
struct Found {
    traces: Vec<Opening>,
    snapshots: Vec<Snapshot>,
    profiles: Vec<ToolRun>,
    passed_over: Vec<TraceError>,
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
            let what = "a run directory, which has all of its ranks; name it alone".into();
            return Err(ImportError::NotATrace { path: path.to_owned(), what }.into());
        }
        let before = self.count();
        let (mut report, mut refused) = (None, Vec::new());
        for file in files_of(&newest_profile(path).unwrap_or(path.to_owned()))? {
            match self.take(&file) {
                // It lies beside its export, or is all there is.
                Err(error @ TraceError::Import(ImportError::NsysReport { .. })) => report = Some(error),
                Err(TraceError::Import(
                    error @ (ImportError::NotATrace { .. }
                    | ImportError::Snapshot(SnapshotError::SomethingElse { .. } | SnapshotError::Pickle { .. })),
                )) => refused.push((file, TraceError::Import(error))),
                other => other?,
            }
        }
        if self.count() == before {
            return Err(
                report.unwrap_or_else(|| TraceError::NotARun { path: path.to_owned(), why: why_none(path, &refused) })
            );
        }
        // What else is there does not matter.
        let named_as_traces = refused.into_iter().filter(|(file, _)| is_named_as_trace(file));
        self.passed_over.extend(named_as_traces.map(|(_, why)| why));
        Ok(())
    }

    fn count(&self) -> usize {
        self.traces.len() + self.snapshots.len() + self.profiles.len()
    }

    fn take(&mut self, file: &Path) -> Result<(), TraceError> {
        let opened = open_regular(file).map_err(TraceError::io("open", file))?;
        let head = recognize::head_of(&opened);
        if flight_recorder::may_be_dump(&head) {
            self.profiles.push(flight_recorder::read(file, opened, &head)?);
        } else if torch_snapshot::may_be_snapshot(&head) {
            let (bytes, _) = unpacked::open(Arc::new(opened)).map_err(TraceError::io("read", file))?;
            self.snapshots.push(Snapshot::read(file, bytes)?);
        } else if head.starts_with(sqlite::MAGIC) && recognize::is_packed(&opened) {
            let name = file.file_name().unwrap_or_default().display();
            let what = format!("an SQLite database packed with gzip; unpack it first: gunzip --keep {name}");
            return Err(ImportError::NotATrace { path: file.to_owned(), what }.into());
        } else if head.starts_with(sqlite::MAGIC) {
            self.profiles.push(profile_of(Database::open(file)?)?);
        } else if nsys::is_report(&head, file) {
            return Err(ImportError::NsysReport { path: file.to_owned() }.into());
        } else if let Some(run) = read_profile(file, &opened, &head)? {
            self.profiles.push(run);
        } else {
            let keep = self.traces.len() < MOST_OPEN;
            self.traces.push(kineto::look_at(file, opened, keep)?);
        }
        Ok(())
    }

    /// The run that all of it is of.
    fn run(self, name: String) -> Result<ImportedRun, TraceError> {
        if !self.profiles.is_empty() {
            return self.run_of_profiles(name);
        }
        let mut run = match self.traces.as_slice() {
            [] => ImportedRun {
                info: torch_snapshot::run_info(name, &self.snapshots),
                ranks: Vec::new(),
                passed_over: Vec::new(),
            },
            _ => {
                let (info, ranks) = kineto::run_of(name, self.traces)?;
                let of_trace = |(path, info, trace)| {
                    let source = RankSource::Kineto { trace, memory: None };
                    SourceRank { path, info, state: State::Complete, source }
                };
                ImportedRun { info, ranks: ranks.into_iter().map(of_trace).collect(), passed_over: Vec::new() }
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

    /// The run of files that one tool wrote: its ranks are numbered through where the files do not say which they are.
    fn run_of_profiles(self, name: String) -> Result<ImportedRun, TraceError> {
        let others = self.traces.iter().map(|(path, ..)| path).chain(self.snapshots.iter().map(|other| &other.path));
        let one = &self.profiles[0];
        let of_others = self.profiles.iter().filter(|other| other.info.source != one.info.source);
        if let Some(other) = others.chain(of_others.map(|other| &other.path)).next() {
            let why = "different tools wrote them".to_owned();
            return Err(ImportError::OtherJob { one: one.path.clone(), other: other.clone(), why }.into());
        }
        if let Some((other, why)) =
            self.profiles[1..].iter().find_map(|other| Some((other, one.is_of_another_job(other)?)))
        {
            return Err(ImportError::OtherJob { one: one.path.clone(), other: other.path.clone(), why }.into());
        }
        let info = RunInfo { name, ..one.info.clone() };
        let mut run = ImportedRun { info, ranks: Vec::new(), passed_over: Vec::new() };
        for ToolRun { path, rank, ranks, .. } in self.profiles {
            let next = run.ranks.last().map_or(Rank(0), |last: &SourceRank| Rank(last.info.rank.0 + 1));
            let first = rank.or_else(|| rank_in_name(&path)).filter(|_| ranks.len() == 1).unwrap_or(next);
            for (number, mut rank) in (first.0..).map(Rank).zip(ranks) {
                rank.info.rank = number;
                if let Some(one) = run.ranks.iter().find(|other| other.info.rank == number) {
                    return Err(ImportError::SameRank { rank: number, one: one.path.clone(), other: path }.into());
                }
                let (info, state) = (rank.info.clone(), rank.state);
                let source = RankSource::Tables(Box::new(rank));
                run.ranks.push(SourceRank { path: path.clone(), info, state, source });
            }
        }
        run.ranks.sort_by_key(|rank| rank.info.rank);
        if run.info.groups.is_empty() {
            run.info.groups = groups_told(run.ranks.iter().map(|rank| &rank.info), run.info.world_size);
        }
        Ok(run)
    }
}

/// Why a directory has nothing in it that is read. Of the files of a run, the run itself says more.
fn why_none(directory: &Path, refused: &[(PathBuf, TraceError)]) -> String {
    let mut why = "it has no run.json, and contains no trace, profile or memory snapshot".to_owned();
    if directory.parent().is_some_and(|parent| parent.join(run_info::FILE).exists()) {
        return why;
    }
    for (_, error) in refused.iter().take(MOST_TOLD) {
        why += &format!("\n  {error}");
    }
    if let Some(more @ 1..) = refused.len().checked_sub(MOST_TOLD) {
        why += &format!("\n  {} are not read, either", text::counted(more as u64, "other file"));
    }
    why
}

/// Whether a file is named as the tools name theirs whose files are read.
pub(super) fn is_named_as_trace(file: &Path) -> bool {
    const ENDS: [&str; 8] = ["json", "gz", "pickle", "pkl", "pt", "sqlite", "db", "pb"];
    file.extension().is_some_and(|end| ENDS.iter().any(|known| end.eq_ignore_ascii_case(known)))
}

/// The profile that a database holds.
fn profile_of(database: Database) -> Result<ToolRun, TraceError> {
    if nsys::is_export(&database) {
        return nsys::read(database);
    }
    if rocpd::is_rocpd(&database) {
        return rocpd::read(database);
    }
    let what = "an SQLite database of another program".into();
    Err(ImportError::NotATrace { path: database.path, what }.into())
}

/// Reads what a profiler wrote that has all of a run in one file.
fn read_profile(path: &Path, file: &File, head: &[u8]) -> Result<Option<ToolRun>, TraceError> {
    let again = || file.try_clone().map_err(TraceError::io("open", path));
    if kind_of_protobuf(head) == Some(Protobuf::XSpace) {
        return xplane::read(path, again()?).map(Some);
    }
    if rocprof::may_be_results(head) {
        return rocprof::read(path, again()?).map(Some);
    }
    Ok(None)
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

/// Where JAX and TensorFlow put the newest profile in a directory of TensorBoard's. Its folders are named by time.
fn newest_profile(directory: &Path) -> Option<PathBuf> {
    let profiles = fs::read_dir(directory.join("plugins/profile")).ok()?.take(MOST_FILES).flatten();
    profiles.map(|entry| entry.path()).filter(|path| path.is_dir()).max()
}

/// The files of a directory, by name.
pub(super) fn files_of(directory: &Path) -> Result<Vec<PathBuf>, TraceError> {
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
    [".gz", ".json", ".trace", ".pt", ".pickle", ".sqlite", ".db", ".pb", ".xplane"]
        .iter()
        .fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name))
        .into()
}
