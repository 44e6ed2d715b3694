//! Device counters.

use std::collections::BTreeMap;

use crate::stored::fields;
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

fields!(DeviceFigures { rank, counters, over_time, highest_clock });

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

fields!(CounterFigures { mean, least, most, last, samples });

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

    /// What holds its clock down for long, if anything does. At full load devices use all the power they may, and nothing is
    /// wrong with that, so power holds down the clock of one that is slower than others. Heat does so below the highest clock
    /// that was ever seen.
    pub(crate) fn throttling(&self, highest: &HighestClocks) -> Option<Throttling> {
        let (limit, held) = self.held_back().filter(|(_, held)| *held >= LEAST_HELD)?;
        let reference = match limit {
            Limit::Power => highest.mean,
            Limit::Hardware | Limit::Heat => highest.seen,
        };
        let clock = self.mean_clock().zip(reference).filter(|(_, reference)| *reference > 0.0);
        Some(Throttling { limit, held, clock: clock.map_or(1.0, |(clock, reference)| clock / reference) })
    }

    fn mean_clock(&self) -> Option<f64> {
        self.counters.get(SM_CLOCK).map(|clock| clock.mean)
    }
}

/// The highest clocks of all devices, to which that of each is compared.
pub(crate) struct HighestClocks {
    /// Of the means.
    mean: Option<f64>,
    /// That any device was ever seen to have.
    seen: Option<f64>,
}

impl HighestClocks {
    pub(crate) fn of(devices: &[DeviceFigures]) -> HighestClocks {
        HighestClocks {
            mean: devices.iter().filter_map(DeviceFigures::mean_clock).reduce(f64::max),
            seen: devices.iter().filter_map(|device| device.highest_clock).reduce(f64::max),
        }
    }
}

/// A clock that is held down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttling {
    pub(crate) limit: Limit,
    /// In which part of the samples.
    pub(crate) held: f64,
    /// The clock as a share of what it could be; 1, where that is not known.
    pub(crate) clock: f64,
}

/// A device that is held back in fewer of its samples is not slow because of that.
const LEAST_HELD: f64 = 0.1;

/// The counter of the clock of the SMs.
pub(crate) const SM_CLOCK: &str = "gpu.sm_clock_mhz";

/// The counter of what all processes use of its memory.
pub(crate) const MEMORY_USED: &str = "gpu.memory_used";
