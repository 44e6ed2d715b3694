//! One clock for all ranks: by what ties each to the time of day, then by collectives, which end together.

use serde::Serialize;
use stepscope_traces::Rank;

use crate::rank::RankResult;

/// How ranks' clocks were brought together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockSummary {
    /// By what.
    pub aligned_by: AlignedBy,
    /// How far ends that should be one moment are apart afterwards, at most; none where nothing tells.
    pub residual_ns: Option<i64>,
    /// How each rank's clock differs from the first one's.
    pub ranks: Vec<RankClock>,
}

/// By what clocks were brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AlignedBy {
    /// By what ties each to the time of day.
    Anchors,
    /// By collectives, which end together.
    Collectives,
    /// They were not: there is one rank, or nothing is known.
    None,
}

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

/// Turns every rank's time into one.
pub(crate) struct Alignment {
    pub(crate) summary: ClockSummary,
}

impl Alignment {
    /// Aligns the clocks of some ranks.
    pub(crate) fn of(_ranks: &[RankResult]) -> Alignment {
        Alignment { summary: ClockSummary { aligned_by: AlignedBy::None, residual_ns: None, ranks: Vec::new() } }
    }

    /// A time of the rank at this place of the list, in the first rank's clock.
    pub(crate) fn align(&self, _index: usize, time: i64) -> i64 {
        time
    }
}
