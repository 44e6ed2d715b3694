//! Samples of a rank's device: activity, power, clocks, memory in use.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{CounterId, CounterSamples, Names};

use crate::{
    figures::Ledger,
    rank::{
        ledger::{Parts, ledger},
        step_windows::StepWindow,
    },
};

/// How counters of devices and of the links between them begin.
const PREFIXES: [&str; 3] = ["gpu.", "pcie.", "nvlink."];
/// What a device says is in use, and what the process that asked has of it: others may be on the device.
const MEMORY_USED: &str = "gpu.memory_used";
const MEMORY_USED_BY_PROCESS: &str = "gpu.memory_used_by_process";

/// What a device drew since it was first asked, in joules.
const ENERGY: &str = "gpu.energy";

/// When a program took memory, and how much it had at its peak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// When it took some first.
    pub(crate) first: i64,
    pub(crate) first_step_end: Option<i64>,
    pub(crate) peak: i64,
    /// What it had allocated then.
    pub(crate) allocated: u64,
    /// What its allocator had taken from the device then.
    pub(crate) at_peak: u64,
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

    /// What fills the device at the peak. What it said last before the program took anything is the driver's. What it says
    /// beside what the program's allocator has taken by then is the driver's and libraries': by the end of the first step
    /// they have what a step needs.
    pub(crate) fn ledger(&self, taken: &Taken, reserved: impl Fn(i64) -> u64) -> Option<Ledger> {
        let of_device = || self.by_counter.get(MEMORY_USED).filter(|_| !self.is_shared);
        let used = self.by_counter.get(MEMORY_USED_BY_PROCESS).or_else(of_device)?;
        let beside = |(time, used): &(i64, f64)| *used as i64 - i64::try_from(reserved(*time)).unwrap_or(i64::MAX);
        let first_after = |moment: i64| used.iter().find(|(time, _)| *time >= moment);
        let (_, before) = used.iter().rfind(|(time, _)| *time <= taken.first)?;
        let beside_at_peak = beside(first_after(taken.peak)?);
        let of_first_step = taken.first_step_end.and_then(|end| first_after(end.min(taken.peak))).map(beside);
        let driver = *before as u64;
        ledger(&Parts {
            allocated: taken.allocated,
            reserved: taken.at_peak,
            beside: beside_at_peak,
            driver,
            libraries: of_first_step.map_or(0, |beside| u64::try_from(beside).unwrap_or(0).saturating_sub(driver)),
        })
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

/// Which samples the ledger needs, of all there are: what was used last before memory was taken, and first after some
/// moments.
pub(crate) fn needed_for_ledger(
    samples: &CounterSamples,
    names: &Names,
    began: Option<i64>,
    moments: [Option<i64>; 2],
) -> BTreeSet<usize> {
    let mut needed = BTreeSet::new();
    for used in [MEMORY_USED, MEMORY_USED_BY_PROCESS] {
        let times = samples.rows().enumerate().filter(|(_, sample)| names.counter(sample.counter) == Some(used));
        let times: Vec<(i64, usize)> = times.map(|(row, sample)| (sample.time_ns.0, row)).collect();
        // Before anything was taken, each one may be the last.
        needed.extend(
            times.iter().filter(|(time, _)| began.is_none_or(|began| *time <= began)).max().map(|(_, row)| row),
        );
        for moment in moments.into_iter().flatten() {
            needed.extend(times.iter().filter(|(time, _)| *time >= moment).min().map(|(_, row)| row));
        }
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

    const TAKEN: Taken = Taken { first: 12, first_step_end: None, peak: 15, allocated: 1000, at_peak: 1350 };

    #[test]
    fn a_ledger_takes_what_was_there_before_and_what_is_there_after_the_peak() {
        let samples = DeviceSamples::made_of(&[(MEMORY_USED, &[(0, 500.0), (10, 600.0), (20, 2000.0), (30, 2100.0)])]);
        let told = |samples: &DeviceSamples, taken: Taken| samples.ledger(&taken, |_| 1350);
        let ledger = told(&samples, TAKEN).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.device_used_bytes, ledger.residual_bytes), (600, 2000, 50));
        assert_eq!(told(&samples, Taken { first: -1, ..TAKEN }), None, "nothing is known of before");
        assert_eq!(told(&samples, Taken { peak: 31, ..TAKEN }), None, "nothing is known of after");
        let shared = DeviceSamples { is_shared: true, ..samples };
        assert_eq!(told(&shared, TAKEN), None, "others have taken of it too");
    }

    #[test]
    fn what_comes_with_the_first_step_is_the_libraries_and_what_comes_later_is_left_over() {
        let used = [(0, 20.0), (10, 900.0), (20, 1700.0), (30, 2600.0), (40, 2600.0)];
        let samples = DeviceSamples::made_of(&[(MEMORY_USED, &used)]);
        // The allocator takes more right after the peak, before the device is asked.
        let reserved = |time: i64| {
            if time < 10 {
                0
            } else if time < 29 {
                800
            } else {
                1600
            }
        };
        let taken = Taken { first: 5, first_step_end: Some(15), peak: 25, allocated: 700, at_peak: 800 };
        let ledger = samples.ledger(&taken, reserved).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.libraries_bytes), (20, 900 - 20));
        assert_eq!((ledger.device_used_bytes, ledger.residual_bytes), (800 + 1000, 100));
        // A peak in the first step has no more than that step.
        let first = samples.ledger(&Taken { peak: 8, at_peak: 0, allocated: 0, ..taken }, reserved).unwrap();
        assert_eq!((first.libraries_bytes, first.residual_bytes), (80, 0));
    }
}
