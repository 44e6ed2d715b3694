//! Opens run directories and reads them, whole or a window of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::TraceError,
    follower::Follower,
    ids::{Nanos, Rank},
    loss::Loss,
    names::Names,
    rank_info::{RankInfo, State},
    run_info::RunInfo,
    tables::{CounterSamples, MemoryEvents, Spans, Table},
    window::Window,
    writer::rank_directory,
};

/// A run directory.
#[derive(Debug)]
pub struct Run {
    /// Where it is.
    pub path: PathBuf,
    /// What was run.
    pub info: RunInfo,
    /// Its ranks, in order.
    pub ranks: Vec<RankDirectory>,
}

impl Run {
    /// Opens a run directory.
    pub fn open(path: &Path) -> Result<Run, TraceError> {
        let info = RunInfo::read(path)?;
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
                let rank = RankDirectory { path: directory, info, state };
                // A rank that has recorded nothing and has no `rank.json` is about to begin, or was killed before it did.
                if !(unnamed && rank.survey().is_ok_and(|survey| survey.is_empty())) {
                    ranks.push(rank);
                }
            }
        }
        ranks.sort_by_key(|rank| rank.info.rank);
        Ok(Run { path: path.to_owned(), info, ranks })
    }

    /// The newest run under a directory, by the time it began.
    pub fn newest_under(directory: &Path) -> Option<PathBuf> {
        let runs = fs::read_dir(directory).ok()?.filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((RunInfo::read(&path).ok()?.started, path))
        });
        runs.max().map(|(_, path)| path)
    }

    /// What became of the run. It goes on while any rank does, and is complete when every rank is there and is.
    pub fn state(&self) -> State {
        let all = |state| self.ranks.iter().all(|rank| rank.state == state);
        let expected = self.info.world_size.map_or(1, |ranks| ranks as usize);
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

/// One rank's directory.
#[derive(Debug)]
pub struct RankDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself.
    pub info: RankInfo,
    /// What became of it, when the run was opened.
    pub state: State,
}

/// What one rank recorded.
#[derive(Debug, Default)]
pub struct RankData {
    /// Timed intervals.
    pub spans: Spans,
    /// What happened to memory.
    pub memory: MemoryEvents,
    /// Sampled values.
    pub counters: CounterSamples,
    /// The texts behind interned names.
    pub names: Names,
}

impl RankData {
    /// Removes everything and keeps the memory, for the next window or the next rank.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.memory.clear();
        self.counters.clear();
        self.names = Names::default();
    }
}

impl RankDirectory {
    /// Reads what lies in a window, and tells what of the whole rank is lost.
    pub fn read(&self, window: Window) -> Result<(RankData, Loss), TraceError> {
        let mut follower = Follower::new(&self.path, window)?;
        let mut data = RankData::default();
        follower.poll(&mut data)?;
        follower.finish(&mut data);
        Ok((data, follower.loss(self)))
    }

    /// Follows the rank from its beginning.
    pub fn follow(&self) -> Result<Follower, TraceError> {
        Follower::new(&self.path, Window::ALL)
    }

    /// Counts what is there without decompressing it; every checksum is checked.
    pub fn survey(&self) -> Result<Survey, TraceError> {
        let mut follower = Follower::new(&self.path, Window::NONE)?;
        let mut nothing = RankData::default();
        follower.poll(&mut nothing)?;
        follower.finish(&mut nothing);
        Ok(follower.survey(self))
    }
}

/// What a rank's files hold.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Of the spans table.
    pub spans: TableSurvey,
    /// Of the memory table.
    pub memory: TableSurvey,
    /// Of the counters table.
    pub counters: TableSurvey,
    /// Of the strings table.
    pub strings: TableSurvey,
    /// What is lost.
    pub loss: Loss,
}

impl Survey {
    /// Whether nothing was recorded.
    fn is_empty(&self) -> bool {
        self.spans.rows + self.memory.rows + self.counters.rows == 0
    }
}

/// What one file holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableSurvey {
    /// Rows that can be read.
    pub rows: u64,
    /// Batches that can be read.
    pub batches: u64,
    /// The size of the file.
    pub bytes: u64,
    /// From the first beginning to the last end.
    pub time: Option<(Nanos, Nanos)>,
}
