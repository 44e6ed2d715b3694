//! What is read of a run at a moment, and what metrics come of it.

use std::sync::Arc;

use stepscope_analyzer::{Analysis, KnownIncident, LiveSnapshot, RankMemory, known_incidents};
use stepscope_traces::{Nanos, Run, RunInfo, State};

/// A run at a moment.
pub(super) struct Reading {
    pub(super) info: RunInfo,
    pub(super) state: State,
    pub(super) incidents: Vec<KnownIncident>,
    /// Of the steps that count: all that there are of a run that has ended, else the last ones.
    pub(super) analysis: Option<Arc<Analysis>>,
    /// What fills each rank's memory.
    pub(super) memory: Vec<Arc<RankMemory>>,
    /// When the newest activity ended, in nanoseconds since 1970, UTC.
    pub(super) newest_wall: Option<Nanos>,
    pub(super) dropped_events: u64,
    pub(super) unreadable_bytes: u64,
}

impl Reading {
    /// Of a run that grows.
    pub(super) fn live(run: &Run, LiveSnapshot { analysis, memory, newest_wall, loss, .. }: LiveSnapshot) -> Reading {
        Reading {
            analysis,
            memory,
            newest_wall,
            dropped_events: loss.dropped_events,
            unreadable_bytes: loss.unreadable_bytes,
            ..Reading::of(run)
        }
    }

    /// Of a run that has ended.
    pub(super) fn whole(run: &Run, analysis: Arc<Analysis>) -> Reading {
        Reading {
            memory: analysis.memory.iter().cloned().map(Arc::new).collect(),
            dropped_events: analysis.data_loss.dropped_events,
            unreadable_bytes: analysis.data_loss.unreadable_bytes,
            analysis: Some(analysis),
            ..Reading::of(run)
        }
    }

    /// Looks what became of the run, and what went wrong in it.
    pub(super) fn look_again(&mut self, run: &Run) {
        (self.state, self.incidents) = (run.state(), known_incidents(run));
    }

    fn of(run: &Run) -> Reading {
        Reading {
            info: run.info.clone(),
            state: run.state(),
            incidents: known_incidents(run),
            analysis: None,
            memory: Vec::new(),
            newest_wall: None,
            dropped_events: 0,
            unreadable_bytes: 0,
        }
    }
}
