//! What keeps ranks from going on: the first reason, for everyone who waits.

use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use stepscope_traces::Rank;

use crate::{error::TrainError, lock::lock};

/// How often a waiting rank looks whether another one is gone.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why ranks cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// A rank will never come to anything again.
    Gone {
        /// Which one.
        rank: Rank,
        /// What it said, or what is known.
        why: String,
    },
    /// A rank keeps the others waiting.
    Late {
        /// Which one.
        rank: Rank,
        /// For what.
        why: String,
    },
}

impl Reason {
    /// What an error of a rank means to the others.
    pub fn of(rank: Rank, error: &TrainError) -> Reason {
        match error {
            TrainError::RankGone { rank, why } => Reason::Gone { rank: *rank, why: why.clone() },
            TrainError::RankLate { rank, why } => Reason::Late { rank: *rank, why: why.clone() },
            error => Reason::Gone { rank, why: error.to_string() },
        }
    }
}

impl From<Reason> for TrainError {
    fn from(reason: Reason) -> TrainError {
        match reason {
            Reason::Gone { rank, why } => TrainError::RankGone { rank, why },
            Reason::Late { rank, why } => TrainError::RankLate { rank, why },
        }
    }
}

/// The first reason, if there is one.
#[derive(Default)]
pub struct Trouble {
    there: AtomicBool,
    first: Mutex<Option<Reason>>,
}

impl Trouble {
    /// Tells everyone who waits, or will. Says whether this is the first that is heard of.
    pub fn tell(&self, reason: Reason) -> bool {
        let mut first = lock(&self.first);
        let is_first = first.is_none();
        first.get_or_insert(reason);
        self.there.store(true, Ordering::Release);
        is_first
    }

    /// The first reason, as an error.
    pub fn check(&self) -> Result<(), TrainError> {
        if !self.there.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.first).clone().map_or(Ok(()), |reason| Err(reason.into()))
    }

    /// Waits until there is something, or trouble.
    pub(crate) fn wait<T, R>(
        &self,
        mutex: &Mutex<T>,
        changed: &Condvar,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<R, TrainError> {
        let mut state = lock(mutex);
        loop {
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            self.check()?;
            let waited = changed.wait_timeout(state, LOOK_EVERY);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }
}
