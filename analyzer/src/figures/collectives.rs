//! Communication by operation, and who waits in it for whom.

use std::collections::BTreeMap;

use crate::stored::fields;
use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{Rank, SpanKind, Step};

/// All collectives of one operation in groups of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveFigures {
    /// Which operation.
    pub operation: SpanKind,
    /// Along which axis, where that is known.
    pub axis: Option<Axis>,
    /// How many ranks the group has, where that is known.
    pub group_size: Option<u64>,
    /// How many there were; one is counted once, however many ranks take part.
    pub count: u64,
    /// Of their messages.
    pub bytes: Option<u64>,
    /// Time covered by them, summed over ranks.
    pub busy_ns: i64,
    /// What of that no compute covers.
    pub exposed_ns: i64,
    /// The sum of their own times, of those that were seen on all their ranks.
    pub own_ns: Option<i64>,
    /// Time ranks waited in those for others, summed over ranks.
    pub waiting_ns: Option<i64>,
    /// Bytes a second of own time, of those whose bytes are known.
    pub algorithm_bandwidth: Option<f64>,
    /// The same, as what crosses a rank's link.
    pub bus_bandwidth: Option<f64>,
    /// The same by the size of messages, the smallest first, of those whose bytes and own time are known.
    pub by_size: Vec<MessageSize>,
    /// Bytes and own time of those whose bytes and own time are known, by step.
    #[serde(skip)]
    pub by_step: BTreeMap<Option<Step>, (u64, i64)>,
}

fields!(CollectiveFigures {
    operation,
    axis,
    group_size,
    count,
    bytes,
    busy_ns,
    exposed_ns,
    own_ns,
    waiting_ns,
    algorithm_bandwidth,
    bus_bandwidth,
    by_size,
    by_step,
});

/// Collectives whose messages differ by less than a factor of two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageSize {
    /// How many there were.
    pub count: u64,
    /// Of their messages together.
    pub bytes: u64,
    /// The sum of their own times.
    pub own_ns: i64,
    /// Bytes a second of own time.
    pub algorithm_bandwidth: Option<f64>,
    /// The same, as what crosses a rank's link.
    pub bus_bandwidth: Option<f64>,
}

fields!(MessageSize { count, bytes, own_ns, algorithm_bandwidth, bus_bandwidth });

/// A rank's waiting, in collectives that all their ranks recorded. Not in messages, and not in collectives of several
/// stages: that is a bubble of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// Which rank.
    pub rank: Rank,
    /// How long it waited in collectives for others.
    pub wait_ns: i64,
    /// How long others waited in collectives of which it was the last.
    pub caused_wait_ns: i64,
}

fields!(Straggler { rank, wait_ns, caused_wait_ns });

/// How long a rank waited for another one, in the same collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The rank that waited.
    pub rank: Rank,
    /// The one that came last.
    pub for_rank: Rank,
    /// How long.
    pub wait_ns: i64,
}

fields!(Wait { rank, for_rank, wait_ns });
