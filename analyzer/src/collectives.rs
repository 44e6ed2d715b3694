//! Collectives by operation and size of group, and who waits for whom in them.
//!
//! A collective's own time is the least duration over its ranks; the rest of each rank's time in it is waiting, and the
//! straggler is the rank that waits least.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{GroupInfo, Rank, SpanKind};

use crate::{error::AnalysisError, rank::RankResult};

/// All collectives of one operation in groups of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveFigures {
    /// Which operation.
    pub operation: SpanKind,
    /// Along which axis, where that is known.
    pub axis: Option<Axis>,
    /// How many ranks take part, where that is known.
    pub group_size: Option<u64>,
    /// How many there were; one is counted once, however many ranks take part.
    pub count: u64,
    /// Of their messages.
    pub bytes: Option<u64>,
    /// Time covered by them, summed over ranks.
    pub busy_ns: i64,
    /// What of that no compute covers.
    pub exposed_ns: i64,
    /// The sum of their own times.
    pub own_ns: i64,
    /// Time ranks waited in them for others, summed over ranks.
    pub waiting_ns: i64,
    /// Bytes a second of own time.
    pub algorithm_bandwidth: Option<f64>,
    /// The same, as what crosses a rank's link.
    pub bus_bandwidth: Option<f64>,
}

/// A rank's waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// Which rank.
    pub rank: Rank,
    /// How long it waited in collectives for others.
    pub wait_ns: i64,
    /// How long others waited in collectives of which it was the last.
    pub caused_wait_ns: i64,
}

/// The figures of all collectives, and of every rank's waiting.
pub(crate) fn collectives(
    _ranks: &[RankResult],
    _groups: &[GroupInfo],
) -> Result<(Vec<CollectiveFigures>, Vec<Straggler>), AnalysisError> {
    Ok((Vec::new(), Vec::new()))
}
