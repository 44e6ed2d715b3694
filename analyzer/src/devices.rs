//! What devices said of themselves while the steps ran: activity, power, clocks, memory in use.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_traces::{CounterId, CounterSamples, Names, Rank, Step};

use crate::{memory::Ledger, rank::RankResult, steps::StepWindow};

/// How counters of devices and of the links between them begin.
const PREFIXES: [&str; 3] = ["gpu.", "pcie.", "nvlink."];
/// What a device says is in use; where ranks share it, what the one that asked has of it.
const MEMORY_USED: &str = "gpu.memory_used";
const MEMORY_USED_BY_PROCESS: &str = "gpu.memory_used_by_process";

/// What a device drew since it was first asked, in joules.
const ENERGY: &str = "gpu.energy";

/// What one rank's device said while the steps that count ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Whose device.
    pub rank: Rank,
    /// By counter.
    pub counters: BTreeMap<String, CounterFigures>,
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
    /// How many there are.
    pub samples: u64,
}

/// The samples of a rank's device: time and value of each, by counter, in order.
#[derive(Default)]
pub(crate) struct DeviceSamples {
    by_counter: BTreeMap<String, Vec<(i64, f64)>>,
    is_shared: bool,
}

impl DeviceSamples {
    pub(crate) fn of(samples: &CounterSamples, names: &Names, is_shared: bool) -> DeviceSamples {
        let mut by_id = BTreeMap::<CounterId, Vec<(i64, f64)>>::new();
        for sample in samples.rows().filter(|sample| sample.value.is_finite()) {
            by_id.entry(sample.counter).or_default().push((sample.time_ns.0, sample.value));
        }
        let named = by_id.into_iter().filter_map(|(id, mut samples)| {
            let name = names.counter(id).filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))?;
            samples.sort_by_key(|(time, _)| *time);
            Some((name.to_owned(), samples))
        });
        DeviceSamples { by_counter: named.collect(), is_shared }
    }

    /// What fills the device at the peak: what it said first was there before the program took anything, and memory that
    /// was taken stays, so the next sample after the peak has all of it.
    pub(crate) fn ledger(&self, taken_first: i64, peak: i64, allocated: u64, reserved: u64) -> Option<Ledger> {
        let used = self.by_counter.get(if self.is_shared { MEMORY_USED_BY_PROCESS } else { MEMORY_USED })?;
        let (_, before) = used.iter().rfind(|(time, _)| *time <= taken_first)?;
        let (_, at_peak) = used.iter().find(|(time, _)| *time >= peak)?;
        Ledger::of(*at_peak as u64, allocated, reserved, *before as u64)
    }

    /// What the device drew in a window, in joules: between samples it drew evenly. None where it did not say at both
    /// ends.
    pub(crate) fn energy(&self, window: &StepWindow) -> Option<f64> {
        let samples = self.by_counter.get(ENERGY)?;
        let at = |time: i64| {
            let after = samples.partition_point(|(other, _)| *other < time);
            let (later, more) = samples.get(after)?;
            let (earlier, less) = samples.get(after.checked_sub(1)?)?;
            let share = (time - earlier) as f64 / (later - earlier).max(1) as f64;
            Some(less + share * (more - less))
        };
        Some(at(window.end)? - at(window.start)?)
    }

    fn during(&self, steps: &[&StepWindow]) -> BTreeMap<String, CounterFigures> {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return BTreeMap::new() };
        let within = |samples: &[(i64, f64)]| {
            // What is measured over the time since the sample before must have been measured in the steps.
            let begin = samples.partition_point(|(time, _)| *time < first.start) + 1;
            let end = samples.partition_point(|(time, _)| *time <= last.end);
            CounterFigures::of(samples.get(begin..end)?)
        };
        self.by_counter.iter().filter_map(|(name, samples)| Some((name.clone(), within(samples)?))).collect()
    }
}

impl CounterFigures {
    fn of(samples: &[(i64, f64)]) -> Option<CounterFigures> {
        let values = || samples.iter().map(|(_, value)| *value);
        Some(CounterFigures {
            mean: values().sum::<f64>() / samples.len() as f64,
            least: values().reduce(f64::min)?,
            most: values().reduce(f64::max)?,
            samples: samples.len() as u64,
        })
    }
}

/// What every device said during the steps, those of the warm-up left out.
pub(crate) fn devices(ranks: &[RankResult], warm_up: &[Step]) -> Vec<DeviceFigures> {
    let of = |rank: &RankResult| {
        let steps = rank.steps.iter().map(|(window, ..)| window).filter(|window| !warm_up.contains(&window.step));
        let counters = rank.device.during(&steps.collect::<Vec<_>>());
        (!counters.is_empty()).then_some(DeviceFigures { rank: rank.info.rank, counters })
    };
    ranks.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: &[(&str, &[(i64, f64)])]) -> DeviceSamples {
        let by_counter = of.iter().map(|(name, samples)| ((*name).to_owned(), samples.to_vec())).collect();
        DeviceSamples { by_counter, is_shared: false }
    }

    #[test]
    fn samples_of_the_steps_are_counted() {
        let samples = samples(&[("gpu.power", &[(0, 90.0), (6, 200.0), (10, 500.0), (20, 700.0), (31, 80.0)])]);
        let window = |step, start, end| StepWindow { step: Step(step), start, end };
        let (first, last) = (window(1, 5, 15), window(2, 15, 30));
        let power = samples.during(&[&first, &last])["gpu.power"];
        assert_eq!(power, CounterFigures { mean: 600.0, least: 500.0, most: 700.0, samples: 2 });
        assert!(samples.during(&[&window(3, 21, 30)]).is_empty());
        assert!(samples.during(&[]).is_empty());
    }

    #[test]
    fn energy_between_samples_is_drawn_evenly() {
        let samples = samples(&[(ENERGY, &[(0, 0.0), (10, 100.0), (20, 400.0)])]);
        let window = |start, end| StepWindow { step: Step(1), start, end };
        assert_eq!(samples.energy(&window(5, 15)), Some(200.0));
        assert_eq!(samples.energy(&window(5, 21)), None, "nothing is known of after");
    }

    #[test]
    fn a_ledger_takes_what_was_there_before_and_what_is_there_after_the_peak() {
        let samples = samples(&[(MEMORY_USED, &[(0, 500.0), (10, 600.0), (20, 2000.0), (30, 2100.0)])]);
        let ledger = samples.ledger(12, 15, 1000, 1350).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.device_used_bytes, ledger.residual_bytes), (600, 2000, 50));
        assert_eq!(samples.ledger(-1, 15, 1000, 1350), None, "nothing is known of before");
        assert_eq!(samples.ledger(12, 31, 1000, 1350), None, "nothing is known of after");
        let shared = DeviceSamples { is_shared: true, ..samples };
        assert_eq!(shared.ledger(12, 15, 1000, 1350), None, "others have taken of it too");
    }
}
