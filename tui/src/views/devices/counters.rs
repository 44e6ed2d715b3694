//! What devices are asked, what it is called here, and how it is written.

use stepscope_analyzer::{CounterFigures, DeviceFigures, Limit};
use stepscope_plan::text;

use crate::widgets::{Column, Side};

/// Something that devices are asked.
pub(super) struct Counter {
    /// What it is called where it is recorded.
    pub(super) name: &'static str,
    /// In a column.
    header: &'static str,
    /// In a line of its own.
    pub(super) title: &'static str,
    unit: Unit,
    left_out: u8,
}

#[derive(Clone, Copy)]
enum Unit {
    Percent,
    Watts,
    Megahertz,
    Degrees,
    Bytes,
    Rate,
}

/// Which of a counter's values is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The newest.
    Now,
    /// All of them.
    Mean,
}

impl Moment {
    pub(super) fn of(self, figures: &CounterFigures) -> f64 {
        match self {
            Moment::Now => figures.last,
            Moment::Mean => figures.mean,
        }
    }
}

const fn counter(name: &'static str, header: &'static str, title: &'static str, unit: Unit, left_out: u8) -> Counter {
    Counter { name, header, title, unit, left_out }
}

/// What is shown, in this order.
pub(super) const COUNTERS: [Counter; 14] = [
    counter("gpu.utilisation", "busy", "busy", Unit::Percent, 2),
    counter("gpu.tensor_activity", "tensor", "tensor cores", Unit::Percent, 0),
    counter("gpu.sm_activity", "SMs", "multiprocessors", Unit::Percent, 1),
    counter("gpu.dram_activity", "DRAM", "memory traffic", Unit::Percent, 1),
    counter("gpu.power", "power", "power", Unit::Watts, 0),
    counter("gpu.sm_clock_mhz", "SM clock", "SM clock", Unit::Megahertz, 1),
    counter("gpu.temperature", "temp", "temperature", Unit::Degrees, 0),
    counter("gpu.memory_used", "memory", "memory used", Unit::Bytes, 1),
    counter("nvlink.rx", "NVLink in", "NVLink in", Unit::Rate, 4),
    counter("nvlink.tx", "NVLink out", "NVLink out", Unit::Rate, 5),
    counter("pcie.rx", "PCIe in", "PCIe in", Unit::Rate, 6),
    counter("pcie.tx", "PCIe out", "PCIe out", Unit::Rate, 7),
    counter("gpu.sm_occupancy", "occupied", "warps occupied", Unit::Percent, 9),
    counter("gpu.memory_clock_mhz", "DRAM clock", "memory clock", Unit::Megahertz, 10),
];

impl Counter {
    pub(super) const fn column(&self) -> Column {
        let width = match self.unit {
            Unit::Percent => 6,
            Unit::Watts | Unit::Degrees => 6,
            Unit::Bytes => 8,
            Unit::Megahertz | Unit::Rate => 10,
        };
        let width = if self.header.len() > width { self.header.len() } else { width };
        Column { header: self.header, width: width as u16, side: Side::Right, left_out: self.left_out }
    }

    /// Whether it is never more than all of something.
    pub(super) fn is_share(&self) -> bool {
        matches!(self.unit, Unit::Percent)
    }

    pub(super) fn written(&self, value: f64) -> String {
        match self.unit {
            Unit::Percent => text::percent(value / 100.0),
            Unit::Watts => text::watts(value),
            Unit::Megahertz => text::megahertz(value),
            Unit::Degrees => text::celsius(value),
            Unit::Bytes => text::bytes(value.max(0.0) as u64),
            Unit::Rate => text::bandwidth(value.max(0.0)),
        }
    }
}

/// What holds a device back, and in which part of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    why: &'static str,
    share: f64,
}

impl Held {
    /// The worst that holds it back.
    pub(super) fn of(device: &DeviceFigures) -> Option<Held> {
        let (limit, share) = device.held_back()?;
        let why = match limit {
            Limit::Hardware => "HARDWARE",
            Limit::Heat => "TOO HOT",
            Limit::Power => "POWER",
        };
        Some(Held { why, share })
    }

    pub(super) fn words(self) -> String {
        format!("{} {}", self.why, text::whole_percent(self.share.max(0.01)))
    }
}

/// Errors that could not be corrected, and critical ones.
pub(super) fn errors(device: &DeviceFigures) -> f64 {
    let most = |counter: &str| device.counters.get(counter).map_or(0.0, |figures| figures.most);
    let critical = device.counters.get("gpu.xid").map_or(0.0, |figures| figures.samples as f64);
    most("gpu.ecc.uncorrected") + critical
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stepscope_traces::Rank;

    use super::*;

    fn device(means: &[(&str, f64)]) -> DeviceFigures {
        let figures = |mean| CounterFigures { mean, least: 0.0, most: 1.0, last: mean, samples: 10 };
        let counters = means.iter().map(|(name, mean)| ((*name).to_owned(), figures(*mean))).collect();
        DeviceFigures { rank: Rank(0), counters, over_time: BTreeMap::new(), highest_clock: None }
    }

    #[test]
    fn the_worst_that_holds_a_device_back_is_told() {
        assert_eq!(Held::of(&device(&[])), None);
        assert_eq!(Held::of(&device(&[("gpu.throttle.power", 0.0)])), None);
        let both = device(&[("gpu.throttle.power", 1.0), ("gpu.throttle.thermal", 0.001)]);
        assert_eq!(Held::of(&both).map(Held::words), Some("TOO HOT 1%".into()));
    }

    #[test]
    fn errors_are_those_that_lose_something() {
        assert_eq!(errors(&device(&[])), 0.0);
        assert_eq!(errors(&device(&[("gpu.ecc.uncorrected", 0.5), ("gpu.xid", 79.0)])), 11.0);
    }
}
