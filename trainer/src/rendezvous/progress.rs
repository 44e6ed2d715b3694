//! How far a rank is in what it does with others.

use std::{
    collections::HashMap,
    fmt,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use stepscope_traces::{Group, Rank, SpanKind};

use crate::{error::TrainError, lock::lock};

/// What is numbered together, and done in that order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Channel {
    /// Collectives of a group.
    Collective(Group),
    /// Messages of a group from one rank to another.
    Message { group: Group, from: Rank, to: Rank },
    /// An exchange through the hub.
    Exchange(String),
}

/// Something that ranks do together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) channel: Channel,
    pub(crate) number: u64,
    pub(crate) kind: SpanKind,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { channel, number, kind } = self;
        match channel {
            Channel::Collective(group) => write!(f, "{kind} {number} of group {group}"),
            Channel::Message { group, from, to } => {
                write!(f, "message {number} of group {group} from rank {from} to rank {to}")
            }
            Channel::Exchange(name) => write!(f, "the exchange of {name}"),
        }
    }
}

/// How far a rank is, as others hear of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The newest that it has started in each channel.
    pub(crate) started: Vec<Operation>,
    /// Those that it is in.
    pub(crate) open: Vec<Operation>,
    /// The newest that it has finished.
    pub(crate) finished: Option<Operation>,
}

impl Report {
    /// Whether a rank has started an operation, or a later one in its place.
    pub(crate) fn has_started(&self, operation: &Operation) -> bool {
        self.started.iter().any(|newest| newest.channel == operation.channel && newest.number >= operation.number)
    }

    /// Where the rank is, for a person.
    pub(crate) fn whereabouts(&self) -> Option<String> {
        let open = self.open.first().map(|open| format!("its last operation is {open}"));
        open.or_else(|| self.finished.as_ref().map(|finished| format!("last finished operation: {finished}")))
    }
}

/// How far this rank is.
#[derive(Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    started: HashMap<Channel, Operation>,
    open: Vec<(Operation, Instant)>,
    finished: Option<Operation>,
}

impl Progress {
    /// Notes that an operation begins.
    pub(crate) fn start(&self, operation: Operation) {
        let mut state = lock(&self.0);
        state.open.push((operation.clone(), Instant::now()));
        state.started.insert(operation.channel.clone(), operation);
    }

    /// Notes that it is done.
    pub(crate) fn finish(&self, operation: &Operation) {
        let mut state = lock(&self.0);
        state.open.retain(|(open, _)| open != operation);
        state.finished = Some(operation.clone());
    }

    /// Does something, and notes when it begins and when it is done. What fails is never done.
    pub(crate) fn during<T>(
        &self,
        operation: &Operation,
        work: impl FnOnce() -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        self.start(operation.clone());
        let result = work()?;
        self.finish(operation);
        Ok(result)
    }

    /// What to tell the others.
    pub(crate) fn report(&self) -> Report {
        let state = lock(&self.0);
        Report {
            started: state.started.values().cloned().collect(),
            open: state.open.iter().map(|(operation, _)| operation.clone()).collect(),
            finished: state.finished.clone(),
        }
    }

    /// What has taken longest, and at least `bound`.
    pub(crate) fn stuck(&self, bound: Duration) -> Option<Operation> {
        let state = lock(&self.0);
        let oldest = state.open.iter().min_by_key(|(_, since)| *since)?;
        (oldest.1.elapsed() >= bound).then(|| oldest.0.clone())
    }
}
