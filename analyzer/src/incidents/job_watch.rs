//! A job, watched while it runs.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    path::{Path, PathBuf},
    time::Instant,
};

use stepscope_traces::{Rank, Run, State, Step};

use super::rank_watch::{Noticed, RankWatch};
use crate::error::AnalysisError;

/// A job, watched while it runs.
pub struct JobWatch {
    path: PathBuf,
    run: Run,
    ranks: BTreeMap<Rank, RankWatch>,
    /// What was said of a rank already.
    gone: BTreeSet<Rank>,
    out_of_memory: BTreeMap<Rank, u64>,
    raised: BTreeSet<Rank>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A step took far longer than usual.
    SlowStep {
        /// On which rank.
        rank: Rank,
        /// Which step.
        step: Step,
        /// How long it took.
        took_ns: i64,
        /// How long one usually takes.
        usual_ns: i64,
    },
    /// The loss is no number.
    LossNotFinite {
        /// On which rank.
        rank: Rank,
        /// In which step, if that is known.
        step: Option<Step>,
        /// What it is instead.
        loss: f64,
    },
    /// A device had no memory left.
    OutOfMemory(Rank),
    /// The program of a rank raised what nobody caught, in its own words.
    Raised(Rank, String),
    /// The process of a rank is gone, and its recording is not over; why, if it could say.
    Gone(Rank, Option<String>),
}

/// The last step that a rank is known to have begun and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedStep {
    /// Of which rank.
    pub rank: Rank,
    /// Which step.
    pub step: Option<Step>,
    /// When that was heard of; none, if there was none yet.
    pub stepped: Option<Instant>,
    /// When anything was heard of the rank.
    pub heard: Option<Instant>,
}

impl JobWatch {
    /// Watches a run from its beginning on.
    pub fn open(path: &Path) -> Result<JobWatch, AnalysisError> {
        Ok(JobWatch {
            path: path.to_owned(),
            run: Run::open(path)?,
            ranks: BTreeMap::new(),
            gone: BTreeSet::new(),
            out_of_memory: BTreeMap::new(),
            raised: BTreeSet::new(),
        })
    }

    /// The run, as it was when it was looked at last.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Reads what is new, and tells what is not as it should be.
    pub fn look(&mut self) -> Result<Vec<Notice>, AnalysisError> {
        self.run = Run::open(&self.path)?;
        let mut notices = Vec::new();
        for directory in &self.run.ranks {
            let (rank, notes) = (directory.info.rank, &directory.info.collector);
            let times = notes.out_of_memory.as_ref().map_or(0, |shortage| shortage.times);
            if times > self.out_of_memory.insert(rank, times).unwrap_or(0) {
                notices.push(Notice::OutOfMemory(rank));
            }
            if let Some(raised) = notes.exception.as_ref().filter(|_| self.raised.insert(rank)) {
                notices.push(Notice::Raised(rank, raised.clone()));
            }
            // A recording may end early while its program goes on.
            let is_gone = directory.state == State::Interrupted && !directory.info.runs_here();
            if self.ranks.get(&rank).is_some_and(|watch| watch.path != directory.path) {
                // Processes that do nothing are no ranks, and others may have their numbers.
                self.ranks.remove(&rank);
            }
            let watch = match self.ranks.entry(rank) {
                Entry::Occupied(watch) => watch.into_mut(),
                Entry::Vacant(place) => place.insert(RankWatch::new(directory)?),
            };
            // One whose files cannot be read is no reason not to watch the others.
            let noticed = watch.look().unwrap_or_default();
            notices.extend(noticed.into_iter().map(|noticed| match noticed {
                Noticed::Slow { step, took_ns, usual_ns } => Notice::SlowStep { rank, step, took_ns, usual_ns },
                Noticed::LossNotFinite { step, loss } => Notice::LossNotFinite { rank, step, loss },
            }));
            if is_gone && self.gone.insert(rank) {
                notices.push(Notice::Gone(rank, directory.info.reason.clone()));
            }
        }
        Ok(notices)
    }

    /// For how long the process of each rank stood still in a step or one beside it.
    pub fn stood_still(&self, step: Step) -> Vec<(Rank, i64)> {
        self.ranks.iter().map(|(rank, watch)| (*rank, watch.stood_still_ns(step))).collect()
    }

    /// Forgets how slow steps were: what was slow was something else, a hang.
    pub fn forgive(&mut self) {
        self.ranks.values_mut().for_each(RankWatch::forgive);
    }

    /// How long a step usually takes, by the rank that takes longest; none, before there were enough.
    pub fn usual_ns(&self) -> Option<i64> {
        self.ranks.values().filter_map(RankWatch::usual_ns).max()
    }

    /// The last step of each rank.
    pub fn last_steps(&self) -> Vec<WatchedStep> {
        let last = |(rank, watch): (&Rank, &RankWatch)| WatchedStep {
            rank: *rank,
            step: watch.last_step(),
            stepped: watch.stepped,
            heard: watch.heard,
        };
        self.ranks.iter().map(last).collect()
    }
}
