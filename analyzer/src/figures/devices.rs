//! Device counters.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_traces::Rank;

/// What one rank's device said while the steps that count ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Whose device.
    pub rank: Rank,
    /// By counter.
    pub counters: BTreeMap<String, CounterFigures>,
    /// The values of each over that time, in order; of many, means of some that follow each other.
    #[serde(skip)]
    pub over_time: BTreeMap<String, Vec<f64>>,
}

/// The values of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CounterFigures {
    /// Of the samples.
    pub mean: f64,
    /// The least of them.
    pub least: f64,
    /// The most of them.
    pub most: f64,
    /// The newest of them.
    pub last: f64,
    /// How many there are.
    pub samples: u64,
}
