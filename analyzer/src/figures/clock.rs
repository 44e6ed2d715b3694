//! How ranks' clocks were brought together.

use crate::stored::{fields, one_of};
use serde::Serialize;
use stepscope_traces::Rank;

/// How ranks' clocks were brought together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockSummary {
    /// By what.
    pub aligned_by: AlignedBy,
    /// How far the ends of a collective are apart afterwards on its ranks, in 95 of 100 of them; where there are only
    /// messages, the ends of both sides of one. None where nothing tells.
    pub residual_ns: Option<i64>,
    /// How each rank's clock differs from the first one's.
    pub ranks: Vec<RankClock>,
}

fields!(ClockSummary { aligned_by, residual_ns, ranks });

/// By what clocks were brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AlignedBy {
    /// By what ties each to the time of day; also where all ranks share a clock.
    Anchors,
    /// By collectives, which end together, or by messages.
    Collectives,
    /// They were not: there is one rank, or nothing is known.
    None,
}

one_of!(AlignedBy: [AlignedBy::Anchors, AlignedBy::Collectives, AlignedBy::None]);

/// How a rank's clock differs from that of the first rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankClock {
    /// Which rank.
    pub rank: Rank,
    /// What to add to its time at the beginning of its recording.
    pub offset_ns: i64,
    /// What to add besides for every second since.
    pub drift_ns_per_second: f64,
}

fields!(RankClock { rank, offset_ns, drift_ns_per_second });
