//! What recording costs a rank, as it measures itself, and what it may cost.

use serde::{Deserialize, Serialize};

/// Steps of a rank whose recording may cost only so much: some are recorded, and compared with the others.
///
/// Shares are of the time that steps take when they are not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingCost {
    /// What recording may cost on average.
    pub budget: f64,
    /// What a recorded step costs, once enough of both were seen.
    pub while_on: Option<MeasuredCost>,
    /// How many steps have ended.
    pub steps: u64,
    /// How many of them were recorded.
    pub recorded_steps: u64,
    /// How long they took together, but for the first few and for those that took twice as long as usual.
    pub nanos: u64,
    /// How long those of them took that were recorded.
    pub recorded_nanos: u64,
    /// How much of all that time is what recording cost.
    pub spent_nanos: u64,
}

/// What a recorded step takes more than one that is not, with an interval of 95%.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCost {
    /// The mean.
    pub share: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// How many stretches of recorded steps were compared with their neighbours.
    pub comparisons: u64,
}

super::field::values!(RecordingCost);

impl RecordingCost {
    /// For how much of the time the rank was recorded.
    pub fn duty(&self) -> f64 {
        if self.nanos == 0 { 1.0 } else { self.recorded_nanos as f64 / self.nanos as f64 }
    }

    /// What recording has cost on average, all steps together, once that is known.
    pub fn average(&self) -> Option<f64> {
        self.while_on?;
        let without = self.nanos.saturating_sub(self.spent_nanos).max(1);
        Some(self.spent_nanos as f64 / without as f64)
    }
}
