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
    /// The highest clock of its SMs at any time, in MHz.
    #[serde(skip)]
    pub highest_clock: Option<f64>,
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

/// What holds a device back, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The hardware cuts clocks by half or more.
    Hardware,
    /// It is too hot.
    Heat,
    /// It may not take more power.
    Power,
}

impl Limit {
    const ALL: [Limit; 3] = [Limit::Hardware, Limit::Heat, Limit::Power];

    /// The counter that is 1 while it does.
    fn counter(self) -> &'static str {
        match self {
            Limit::Hardware => "gpu.throttle.hardware",
            Limit::Heat => "gpu.throttle.thermal",
            Limit::Power => "gpu.throttle.power",
        }
    }
}

impl DeviceFigures {
    /// The worst that holds it back, and in which part of the samples.
    pub fn held_back(&self) -> Option<(Limit, f64)> {
        let held =
            |limit: Limit| Some((limit, self.counters.get(limit.counter())?.mean)).filter(|(_, share)| *share > 0.0);
        Limit::ALL.into_iter().find_map(held)
    }

    /// Its clock beside the highest one that any of the devices had, where both are known.
    pub(crate) fn clock_share(&self, devices: &[DeviceFigures]) -> Option<f64> {
        let highest = devices.iter().filter_map(|device| device.highest_clock).reduce(f64::max)?;
        let clock = self.counters.get(SM_CLOCK).filter(|_| highest > 0.0)?;
        Some(clock.mean / highest)
    }
}

/// The counter of the clock of the SMs.
pub(crate) const SM_CLOCK: &str = "gpu.sm_clock_mhz";

/// A device that is held back in fewer of its samples is not slow because of that.
pub(crate) const LEAST_HELD: f64 = 0.1;
