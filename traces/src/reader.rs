//! Opens run directories and reads them, whole or a window of them.

use std::{
    fs, io, mem,
    path::{Path, PathBuf},
};

use crate::{
    error::TraceError,
    follower::Follower,
    ids::Rank,
    import::kineto::{self, KinetoTrace},
    loss::Loss,
    rank_data::{RankData, Survey},
    rank_info::{RankInfo, State},
    run_info::{self, RunInfo},
    tables::{MemoryEvents, Spans},
    window::Window,
    writer::rank_directory,
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
}

impl Run {
    /// Opens what people name as a source, by its content: a run directory, a trace of PyTorch's profiler, or a
    /// directory with one for each rank.
    pub fn of_source(path: &Path) -> Result<Run, TraceError> {
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() && path.join(run_info::FILE).exists() => Run::open(path),
            Ok(_) => kineto::open(path),
            // It knows the words for this.
            Err(_) => Run::open(path),
        }
    }

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
                let rank = RankDirectory { path: directory, info, state, origin: Origin::Directory };
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

/// One rank of a run: its directory, or its trace.
#[derive(Debug)]
pub struct RankDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself.
    pub info: RankInfo,
    /// What became of it, when the run was opened.
    pub state: State,
    /// What is there.
    pub(crate) origin: Origin,
}

/// What holds a rank's tables.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A directory of our own.
    Directory,
    /// A trace of PyTorch's profiler.
    Kineto(Box<KinetoTrace>),
}

impl RankDirectory {
    /// Reads what lies in a window, and tells what of the whole rank is lost.
    pub fn read(&self, window: Window) -> Result<(RankData, Loss), TraceError> {
        if let Origin::Kineto(trace) = &self.origin {
            let read = trace.read(window)?;
            return Ok((read.data, read.loss));
        }
        let mut follower = Follower::new(&self.path, window)?;
        let mut data = RankData::default();
        follower.poll(&mut data)?;
        follower.finish(&mut data);
        Ok((data, follower.loss(&self.info, self.state)))
    }

    /// Reads all, with what a trace of another tool says of its rank only at its end.
    pub(crate) fn read_with_info(&self) -> Result<(RankInfo, RankData, Loss), TraceError> {
        let mut info = self.info.clone();
        let (data, loss) = match &self.origin {
            Origin::Directory => self.read(Window::ALL)?,
            Origin::Kineto(trace) => {
                let read = trace.read(Window::ALL)?;
                info.device = read.device.or(info.device);
                info.reason = read.cut;
                (read.data, read.loss)
            }
        };
        Ok((info, data, loss))
    }

    /// As [`RankDirectory::read`], but spans and memory events are shown piece by piece, with the counters and names of
    /// the rank, and not kept. However long the rank recorded, this takes little memory; a trace of another tool is one
    /// piece.
    pub fn read_in_pieces(
        &self,
        window: Window,
        mut spans: impl FnMut(&RankData, &Spans),
        mut memory: impl FnMut(&MemoryEvents),
    ) -> Result<(RankData, Loss), TraceError> {
        if let Origin::Kineto(_) = &self.origin {
            let (mut data, loss) = self.read(window)?;
            let (all_spans, all_memory) = (mem::take(&mut data.spans), mem::take(&mut data.memory));
            spans(&data, &all_spans);
            drop(all_spans);
            memory(&all_memory);
            return Ok((data, loss));
        }
        let mut follower = Follower::new(&self.path, window)?;
        let mut data = RankData::default();
        follower.visit(&mut data, spans, memory)?;
        Ok((data, follower.loss(&self.info, self.state)))
    }

    /// Follows the rank from its beginning. A trace of another tool is written when all is over, and cannot be followed.
    pub fn follow(&self) -> Result<Follower, TraceError> {
        if let Origin::Kineto(_) = &self.origin {
            return Err(TraceError::NotARun { path: self.path.clone(), why: "it is a trace, which does not grow" });
        }
        Follower::new(&self.path, Window::ALL)
    }

    /// Counts what is there without decompressing it; every checksum is checked. A trace of another tool is read whole.
    pub fn survey(&self) -> Result<Survey, TraceError> {
        if let Origin::Kineto(_) = &self.origin {
            let (data, loss) = self.read(Window::ALL)?;
            let bytes = self.path.metadata().map_err(TraceError::io("look at", &self.path))?.len();
            return Ok(Survey::of(&data, bytes, loss));
        }
        let mut follower = Follower::new(&self.path, Window::NONE)?;
        let mut nothing = RankData::default();
        follower.poll(&mut nothing)?;
        follower.finish(&mut nothing);
        Ok(follower.survey(&self.info, self.state))
    }
}
