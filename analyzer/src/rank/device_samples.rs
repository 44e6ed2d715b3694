//! Samples of a rank's device: activity, power, clocks, memory in use.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{CounterId, CounterSamples, Names};

use crate::{
    figures::Ledger,
    rank::{ledger::ledger, step_windows::StepWindow},
};

/// How counters of devices and of the links between them begin.
const PREFIXES: [&str; 3] = ["gpu.", "pcie.", "nvlink."];
/// What a device says is in use; where ranks share it, what the one that asked has of it.
const MEMORY_USED: &str = "gpu.memory_used";
const MEMORY_USED_BY_PROCESS: &str = "gpu.memory_used_by_process";

/// What a device drew since it was first asked, in joules.
const ENERGY: &str = "gpu.energy";

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
        ledger(*at_peak as u64, allocated, reserved, *before as u64)
    }

    /// What the device drew from one time to another, in joules: between samples it drew evenly. None where it did not say at both
    /// ends.
    pub(crate) fn energy(&self, start: i64, end: i64) -> Option<f64> {
        let samples = self.by_counter.get(ENERGY)?;
        let at = |time: i64| {
            let after = samples.partition_point(|(other, _)| *other < time);
            let (later, more) = samples.get(after)?;
            let (earlier, less) = samples.get(after.checked_sub(1)?)?;
            let share = (time - earlier) as f64 / (later - earlier).max(1) as f64;
            Some(less + share * (more - less))
        };
        Some(at(end)? - at(start)?)
    }

    /// The samples of each counter in some steps; where a rank has none, all there are.
    pub(crate) fn during(
        &self,
        steps: &[&StepWindow],
        has_steps: bool,
    ) -> impl Iterator<Item = (&String, &[(i64, f64)])> {
        let extent = match (steps.first(), steps.last()) {
            (Some(first), Some(last)) => Some((first.start, last.end)),
            _ if has_steps => None,
            _ => Some((i64::MIN, i64::MAX)),
        };
        let within = move |samples: &'_ [(i64, f64)]| {
            let (start, end) = extent?;
            // What is measured over the time since the sample before must have been measured in the steps.
            let begin = samples.partition_point(|(time, _)| *time < start) + usize::from(start > i64::MIN);
            let end = samples.partition_point(|(time, _)| *time <= end);
            (begin < end).then_some((begin, end))
        };
        self.by_counter.iter().filter_map(move |(name, samples)| {
            let (begin, end) = within(samples)?;
            Some((name, &samples[begin..end]))
        })
    }
}

/// Which samples the ledger needs, of all there are: what was used last before memory was taken, and first at the peak.
pub(crate) fn needed_for_ledger(
    samples: &CounterSamples,
    names: &Names,
    began: Option<i64>,
    peak: Option<i64>,
) -> BTreeSet<usize> {
    let mut needed = BTreeSet::new();
    for used in [MEMORY_USED, MEMORY_USED_BY_PROCESS] {
        let times = samples.rows().enumerate().filter(|(_, sample)| names.counter(sample.counter) == Some(used));
        let times: Vec<(i64, usize)> = times.map(|(row, sample)| (sample.time_ns.0, row)).collect();
        // Before anything was taken, each one may be the last.
        needed.extend(
            times.iter().filter(|(time, _)| began.is_none_or(|began| *time <= began)).max().map(|(_, row)| row),
        );
        needed
            .extend(times.iter().filter(|(time, _)| peak.is_some_and(|peak| *time >= peak)).min().map(|(_, row)| row));
    }
    needed
}

#[cfg(test)]
impl DeviceSamples {
    /// Samples by counter, of a device that no other rank has.
    pub(crate) fn made_of(samples: &[(&str, &[(i64, f64)])]) -> DeviceSamples {
        let by_counter = samples.iter().map(|(name, samples)| ((*name).to_owned(), samples.to_vec())).collect();
        DeviceSamples { by_counter, is_shared: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_between_samples_is_drawn_evenly() {
        let samples = DeviceSamples::made_of(&[(ENERGY, &[(0, 0.0), (10, 100.0), (20, 400.0)])]);
        assert_eq!(samples.energy(5, 15), Some(200.0));
        assert_eq!(samples.energy(5, 21), None, "nothing is known of after");
    }

    #[test]
    fn a_ledger_takes_what_was_there_before_and_what_is_there_after_the_peak() {
        let samples = DeviceSamples::made_of(&[(MEMORY_USED, &[(0, 500.0), (10, 600.0), (20, 2000.0), (30, 2100.0)])]);
        let ledger = samples.ledger(12, 15, 1000, 1350).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.device_used_bytes, ledger.residual_bytes), (600, 2000, 50));
        assert_eq!(samples.ledger(-1, 15, 1000, 1350), None, "nothing is known of before");
        assert_eq!(samples.ledger(12, 31, 1000, 1350), None, "nothing is known of after");
        let shared = DeviceSamples { is_shared: true, ..samples };
        assert_eq!(shared.ledger(12, 15, 1000, 1350), None, "others have taken of it too");
    }
}
