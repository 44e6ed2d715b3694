//! Opens run directories, and what other tools recorded, and reads them, whole or a window of them.

mod helpers;
mod shared_gpus;
mod write;

use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    error::{SummaryError, TraceError},
    follower::Follower,
    ids::{Nanos, Rank},
    import::{self, ImportedRank, ImportedRun, RankSource, SourceRank},
    inferred_steps::{InferredSteps, UnnumberedKernels},
    job_summary_file::JobSummary,
    loss::Loss,
    rank_data::{RankData, Survey},
    rank_info::{RankInfo, State, groups_told, rank_directory},
    ring,
    run_info::{RunInfo, RunSource},
    segments,
    summary_file::{self, RankPlace, Summary, SummaryUse},
    tables::{MemoryEvents, Spans},
    window::Window,
};

/// A run: a directory of our own, or what another tool recorded.
#[derive(Debug)]
pub struct Run {
    /// Where it is.
    pub path: PathBuf,
    /// What was run.
    pub info: RunInfo,
    /// Its ranks, in order.
    pub ranks: Vec<RankDirectory>,
    /// Processes of the job that were recorded and did nothing, beside ranks that did: launchers, probes, workers.
    pub helpers: Vec<RankDirectory>,
    /// Why files in a directory of traces are not read, though they are named as if they could be.
    pub passed_over: Vec<TraceError>,
}

impl Run {
    /// Opens a run directory; of one that jobs continue, its newest segment.
    pub fn open(path: &Path) -> Result<Run, TraceError> {
        let path = &segments::newest(path);
        let mut info = RunInfo::read(path)?;
        let mut ranks = Vec::new();
        for entry in fs::read_dir(path).map_err(TraceError::io("list", path))? {
            let directory = entry.map_err(TraceError::io("list", path))?.path();
            let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let rank = name.strip_prefix("rank-").and_then(|number| number.parse().ok()).map(Rank);
            if let Some(rank) = rank.filter(|rank| rank_directory(path, *rank) == directory) {
                // One damaged or unreadable file must not hide the other ranks.
                let read = RankInfo::read(&directory);
                let missing = |source: &io::Error| source.kind() == io::ErrorKind::NotFound;
                let unnamed = matches!(&read, Err(TraceError::Io { source, .. }) if missing(source));
                let info = match read {
                    Ok(info) => RankInfo { rank, ..info },
                    Err(error) => RankInfo::lost(rank, &error.to_string()),
                };
                let state = info.state(&directory);
                let rank = RankDirectory {
                    path: directory,
                    info,
                    state,
                    source: None,
                    read: Arc::default(),
                    summary_use: Mutex::default(),
                };
                // A rank that has recorded nothing and has no `rank.json` is about to begin, or was killed before it did.
                if !(unnamed && rank.survey().is_ok_and(|survey| survey.is_empty())) {
                    ranks.push(rank);
                }
            }
        }
        ranks.sort_by_key(|rank| rank.info.rank);
        let helpers = helpers::set_apart(&mut ranks);
        shared_gpus::tell(&mut ranks);
        ranks.sort_by_key(|rank| rank.info.rank);
        if info.groups.is_empty() {
            info.groups = groups_told(ranks.iter().map(|rank| &rank.info), info.world_size);
        }
        Ok(Run { path: path.to_owned(), info, ranks, helpers, passed_over: Vec::new() })
    }

    /// Whether there is a summary of all its ranks, of whichever state of them.
    pub fn has_job_summary(&self) -> bool {
        JobSummary::is_in(&self.path)
    }

    /// Opens the summary of all its ranks, if there is one of a format that was made of these summaries of them, each with
    /// its checksum.
    pub fn job_summary(&self, ranks: &[(Rank, u32)], format: u32) -> Result<Option<JobSummary>, SummaryError> {
        JobSummary::open(&self.path, &self.info, ranks, format)
    }

    /// Writes the summary of all its ranks, of which each has a summary with this checksum; says how long it is.
    pub fn write_job_summary(&self, ranks: &[(Rank, u32)], format: u32, section: &[u8]) -> Result<u64, TraceError> {
        JobSummary::write(&self.path, &self.info, ranks, (format, section))
    }

    /// Opens what people name as a source, by its content: a run directory, a trace of PyTorch's profiler, a memory
    /// snapshot of PyTorch's, or a directory of those.
    pub fn of_source(path: &Path) -> Result<Run, TraceError> {
        Run::of_sources(&[path])
    }

    /// As [`Run::of_source`], but traces and snapshots may lie in several places. A snapshot of a rank that has a trace
    /// gives it its memory.
    pub fn of_sources(paths: &[impl AsRef<Path>]) -> Result<Run, TraceError> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        if let [path] = *paths {
            // For what is not there, it knows the words.
            if segments::is_run_or_segments(path) || path.metadata().is_err() {
                return Run::open(path);
            }
        }
        let ImportedRun { info, ranks, passed_over } = import::open(&paths)?;
        let directory = |SourceRank { path, info, state, source }| RankDirectory {
            path,
            info,
            state,
            source: Some(source),
            read: Arc::default(),
            summary_use: Mutex::default(),
        };
        let path = paths.first().map_or_else(PathBuf::new, |path| path.to_path_buf());
        let ranks = ranks.into_iter().map(directory).collect();
        Ok(Run { path, info, ranks, helpers: Vec::new(), passed_over })
    }

    /// The first folders in a directory, by name, that hold what other tools recorded.
    pub fn folders_with_traces(directory: &Path, most: usize) -> Vec<PathBuf> {
        import::folders_with_traces(directory, most)
    }

    /// The newest run under a directory, by the time it began.
    pub fn newest_under(directory: &Path) -> Option<PathBuf> {
        Run::all_under(directory).into_iter().next().map(|(path, _)| path)
    }

    /// All runs under a directory and what they say of themselves, the newest first.
    pub fn all_under(directory: &Path) -> Vec<(PathBuf, RunInfo)> {
        let entries = fs::read_dir(directory).into_iter().flatten();
        let mut runs: Vec<(PathBuf, RunInfo)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                Some((path.clone(), RunInfo::read(&segments::newest(&path)).ok()?))
            })
            .collect();
        runs.sort_by(|one, other| (&other.1.started, &other.0).cmp(&(&one.1.started, &one.0)));
        runs
    }

    /// What became of the run. It goes on while any rank does, and is complete when every rank is there and is. Which ranks
    /// of another tool's there are is up to who chose them.
    pub fn state(&self) -> State {
        let all = |state| self.ranks.iter().all(|rank| rank.state == state);
        let expected = self.info.world_size.filter(|_| self.info.source == RunSource::Stepscope);
        let expected = expected.map_or(1, |ranks| ranks as usize);
        if self.ranks.iter().any(|rank| rank.state == State::Recording) {
            State::Recording
        } else if all(State::Complete) && self.ranks.len() >= expected {
            State::Complete
        } else {
            State::Interrupted
        }
    }

    /// One of its ranks.
    pub fn rank(&self, rank: Rank) -> Option<&RankDirectory> {
        self.ranks.iter().find(|directory| directory.info.rank == rank)
    }
}

/// One rank of a run: its directory, or its trace.
#[derive(Debug)]
pub struct RankDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself.
    pub info: RankInfo,
    /// What became of it, when the run was opened.
    pub state: State,
    /// What it is read from, if another tool recorded it and this is no directory.
    source: Option<RankSource>,
    /// How many bytes of it were read.
    read: Arc<AtomicU64>,
    /// What became of its summary.
    summary_use: Mutex<Option<SummaryUse>>,
}

/// What is known of a rank once it has been read. A trace of another tool says some of it only at its end.
#[derive(Clone, Debug)]
pub struct RankReport {
    /// What it says of itself.
    pub info: RankInfo,
    /// What became of it.
    pub state: State,
    /// What of the whole rank is lost.
    pub loss: Loss,
    /// Whether nothing says of its steps but what repeats in its kernels.
    pub steps_are_inferred: bool,
}

impl RankReport {
    /// Of a rank that says of its steps itself, or has none.
    pub fn new(info: RankInfo, state: State, loss: Loss) -> RankReport {
        RankReport { info, state, loss, steps_are_inferred: false }
    }
}

impl RankDirectory {
    /// Reads what lies in a window, and tells what of the whole rank is lost.
    pub fn read(&self, window: Window) -> Result<(RankData, Loss), TraceError> {
        let (data, report) = self.read_with_report(window)?;
        Ok((data, report.loss))
    }

    /// As [`RankDirectory::read`], with all that is known of the rank.
    pub(crate) fn read_with_report(&self, window: Window) -> Result<(RankData, RankReport), TraceError> {
        if let Some(ImportedRank { info, state, data, loss }) = self.imported(window)? {
            return Ok((data, RankReport::new(info, state, loss)));
        }
        self.check_recording()?;
        let steps = self.inferred_steps()?;
        let mut follower = Follower::new(&self.path, window);
        let mut data = RankData::default();
        follower.poll(&mut data)?;
        follower.finish(&mut data);
        self.read.store(self.bytes(), Ordering::Relaxed);
        if let Some(steps) = &steps {
            steps.number(&mut data.spans);
        }
        Ok((data, RankReport { steps_are_inferred: steps.is_some(), ..self.report(&follower) }))
    }

    /// As [`RankDirectory::read`], but spans and memory events are shown piece by piece, with the counters and names of
    /// the rank, and not kept. However long the rank recorded, this takes little memory; a trace of another tool is read
    /// before its first piece is shown.
    pub fn read_in_pieces(
        &self,
        window: Window,
        mut spans: impl FnMut(&RankData, &Spans),
        mut memory: impl FnMut(&MemoryEvents),
    ) -> Result<(RankData, RankReport), TraceError> {
        if let Some(source) = &self.source {
            let rank = source.read_in_pieces(&self.info, window, &self.read, spans)?;
            let ImportedRank { info, state, mut data, loss } = rank;
            self.read.store(self.bytes(), Ordering::Relaxed);
            memory(&mem::take(&mut data.memory));
            return Ok((data, RankReport::new(info, state, loss)));
        }
        self.check_recording()?;
        let steps = self.inferred_steps()?;
        let mut follower = Follower::new(&self.path, window);
        let mut data = RankData::default();
        let numbered = |data: &RankData, piece: &mut Spans| {
            if let Some(steps) = &steps {
                steps.number(piece);
            }
            spans(data, piece);
        };
        follower.visit(&mut data, numbered, memory)?;
        self.read.store(self.bytes(), Ordering::Relaxed);
        Ok((data, RankReport { steps_are_inferred: steps.is_some(), ..self.report(&follower) }))
    }

    /// The steps of a program that was recorded as it is and numbers none, over all that there is of it: so a step has the
    /// same number in every window.
    fn inferred_steps(&self) -> Result<Option<InferredSteps>, TraceError> {
        let Some(mut kernels) = UnnumberedKernels::of(&self.info) else { return Ok(None) };
        let (mut nothing, mut follower) = (RankData::default(), Follower::new(&self.path, Window::ALL));
        follower.visit(&mut nothing, |data, spans| kernels.take(&data.names, spans), |_| {})?;
        Ok(kernels.steps())
    }

    /// Follows the rank from its beginning. A trace of another tool is written when all is over, and cannot be followed.
    pub fn follow(&self) -> Result<Follower, TraceError> {
        self.check_recording()?;
        match self.source {
            None => Ok(Follower::new(&self.path, Window::ALL)),
            Some(_) => {
                Err(TraceError::NotARun { path: self.path.clone(), why: "it is a trace, which does not grow".into() })
            }
        }
    }

    /// Counts what is there without decompressing it; every checksum is checked. A trace of another tool is read whole.
    pub fn survey(&self) -> Result<Survey, TraceError> {
        Ok(self.survey_with_report()?.0)
    }

    /// As [`RankDirectory::survey`], with all that is known of the rank.
    pub fn survey_with_report(&self) -> Result<(Survey, RankReport), TraceError> {
        if let Some(ImportedRank { info, state, data, loss }) = self.imported(Window::ALL)? {
            let bytes = self.path.metadata().map_err(TraceError::io("look at", &self.path))?.len();
            return Ok((Survey::of(&data, bytes, loss), RankReport::new(info, state, loss)));
        }
        self.check_recording()?;
        let mut follower = Follower::new(&self.path, Window::NONE);
        let mut nothing = RankData::default();
        follower.poll(&mut nothing)?;
        follower.finish(&mut nothing);
        Ok((follower.survey(&self.info, self.state), self.report(&follower)))
    }

    /// What another tool recorded of the rank, in a window; none where the rank is our own.
    fn imported(&self, window: Window) -> Result<Option<ImportedRank>, TraceError> {
        let read = self.source.as_ref().map(|source| source.read(&self.info, window, &self.read)).transpose()?;
        if read.is_some() {
            self.read.store(self.bytes(), Ordering::Relaxed);
        }
        Ok(read)
    }

    /// Whether anything that was recorded is here: summaries can be copied alone.
    pub fn has_recording(&self) -> bool {
        self.source.is_some() || summary_file::has_recording(&self.path)
    }

    fn check_recording(&self) -> Result<(), TraceError> {
        if summary_file::exists(&self.path) && !self.has_recording() {
            return Err(TraceError::OnlySummary { path: self.path.clone() });
        }
        Ok(())
    }

    /// Opens the summary of what is recorded here, if there is one of a format; where it is of something else, the error says
    /// so. What another tool recorded has none.
    pub fn summary(&self, run: &RunInfo, format: u32) -> Result<Option<Summary>, SummaryError> {
        if self.source.is_some() {
            return Ok(None);
        }
        summary_file::open(self.place(run), format)
    }

    /// Writes a summary of what is recorded here, in sections; says how long it is. There is no place for one beside what
    /// another tool recorded.
    pub fn write_summary(&self, run: &RunInfo, format: u32, sections: &[Vec<u8>]) -> Result<u64, TraceError> {
        self.check_recording()?;
        if self.source.is_some() {
            let why = "it is a trace, which has no place for summaries".into();
            return Err(TraceError::NotARun { path: self.path.clone(), why });
        }
        summary_file::write(self.place(run), format, sections)
    }

    fn place<'a>(&'a self, run: &'a RunInfo) -> RankPlace<'a> {
        RankPlace { path: &self.path, run, rank: &self.info, state: self.state }
    }

    /// How long its summary is; none, where it has none.
    pub fn summary_bytes(&self) -> Option<u64> {
        summary_file::bytes(&self.path).filter(|_| self.source.is_none())
    }

    /// What became of its summary when it was to be read; none, where it has none or was not read.
    pub fn summary_use(&self) -> Option<SummaryUse> {
        self.summary_use.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what became of its summary.
    pub fn note_summary_use(&self, summary_use: SummaryUse) {
        *self.summary_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(summary_use);
    }

    /// When anything was heard of it last, by the time of day: when it said the time, or counted something.
    pub fn last_heard(&self) -> Option<Nanos> {
        let said = self.info.clock.snapshots.last()?.wall_ns;
        let counted = if self.source.is_none() { Follower::newest_counter(&self.path) } else { None };
        let counted = counted.and_then(|time| self.info.clock.wall_clock().map(time.0)).map(Nanos);
        Some(counted.map_or(said, |counted| counted.max(said)))
    }

    /// How many bytes its spans and its memory take, or its trace.
    pub fn bytes(&self) -> u64 {
        match self.source {
            Some(_) => fs::metadata(&self.path).map_or(0, |file| file.len()),
            None => self.span_bytes() + ring::bytes_of::<MemoryEvents>(&self.path),
        }
    }

    /// How many bytes its spans take, in a directory of our own.
    pub fn span_bytes(&self) -> u64 {
        ring::bytes_of::<Spans>(&self.path)
    }

    /// How many of these were read the last time, while it goes on: a trace from its beginning, a directory at its end.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn report(&self, follower: &Follower) -> RankReport {
        RankReport::new(self.info.clone(), self.state, follower.loss(&self.info, self.state))
    }
}
