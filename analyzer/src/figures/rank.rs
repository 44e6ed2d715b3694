//! Where one rank's time goes.

use serde::Serialize;
use stepscope_traces::Rank;

use super::{breakdown::Breakdown, partition::Partition};
use crate::stored::fields;

/// Where one rank's time goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankFigures {
    /// Which rank.
    pub rank: Rank,
    /// Where it ran; none, where nobody says.
    pub host: Option<String>,
    /// Its time.
    #[serde(flatten)]
    pub partition: Partition,
    /// How many kernels it ran, those that communicate included; no copies.
    pub kernel_count: u64,
    /// Its time by what it was for.
    #[serde(flatten)]
    pub breakdown: Breakdown,
}

fields!(RankFigures { rank, host, partition, kernel_count, breakdown });
