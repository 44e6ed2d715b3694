//! What devices said of themselves while the steps ran: activity, power, clocks, memory in use.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{CounterId, CounterSamples, Names, Step};

use crate::{
    figures::{CounterFigures, DeviceFigures, Ledger},
    memory::ledger,
    rank::RankResult,
    steps::StepWindow,
};

/// How counters of devices and of the links between them begin.
const PREFIXES: [&str; 3] = ["gpu.", "pcie.", "nvlink."];
/// What a device says is in use; where ranks share it, what the one that asked has of it.
const MEMORY_USED: &str = "gpu.memory_used";
const MEMORY_USED_BY_PROCESS: &str = "gpu.memory_used_by_process";

/// What a device drew since it was first asked, in joules.
const ENERGY: &str = "gpu.energy";

/// How many values of a counter are told, at most.
const MOST_VALUES: usize = 256;

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

    /// The samples of each counter in some steps; where a rank has none, all there are.
    fn during(&self, steps: &[&StepWindow], has_steps: bool) -> impl Iterator<Item = (&String, &[(i64, f64)])> {
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

fn counter_figures(samples: &[(i64, f64)]) -> Option<CounterFigures> {
    let values = || samples.iter().map(|(_, value)| *value);
    Some(CounterFigures {
        mean: values().sum::<f64>() / samples.len() as f64,
        least: values().reduce(f64::min)?,
        most: values().reduce(f64::max)?,
        last: values().next_back()?,
        samples: samples.len() as u64,
    })
}

/// The values of some samples, and of many the means of as few as make no more than there is room for.
fn values(samples: &[(i64, f64)]) -> Vec<f64> {
    let together = samples.len().div_ceil(MOST_VALUES).max(1);
    let mean = |samples: &[(i64, f64)]| samples.iter().map(|(_, value)| value).sum::<f64>() / samples.len() as f64;
    samples.chunks(together).map(mean).collect()
}

/// What every device said during the steps, those of the warm-up left out.
pub(crate) fn devices(ranks: &[RankResult], warm_up: &[Step]) -> Vec<DeviceFigures> {
    let of = |rank: &RankResult| {
        let steps = rank.steps.iter().map(|(window, ..)| window).filter(|window| !warm_up.contains(&window.step));
        let steps: Vec<&StepWindow> = steps.collect();
        let has_steps = !(rank.steps.is_empty() && rank.other_steps.is_empty());
        let (mut counters, mut over_time) = (BTreeMap::new(), BTreeMap::new());
        for (name, samples) in rank.device.during(&steps, has_steps) {
            counters.extend(counter_figures(samples).map(|figures| (name.clone(), figures)));
            over_time.insert(name.clone(), values(samples));
        }
        (!counters.is_empty()).then_some(DeviceFigures { rank: rank.info.rank, counters, over_time })
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
        let power = |steps: &[&StepWindow], has_steps| {
            let counters: Vec<_> = samples.during(steps, has_steps).map(|(_, samples)| samples).collect();
            counters.first().and_then(|samples| counter_figures(samples))
        };
        let during = CounterFigures { mean: 600.0, least: 500.0, most: 700.0, last: 700.0, samples: 2 };
        assert_eq!(power(&[&first, &last], true), Some(during));
        assert_eq!(power(&[&window(3, 21, 30)], true), None);
        assert_eq!(power(&[], true), None, "none of its steps was asked for");
        assert_eq!(power(&[], false).map(|all| (all.samples, all.last)), Some((5, 80.0)), "it has no steps");
    }

    #[test]
    fn many_values_become_means_of_a_few() {
        let samples = |count: i64| (0..count).map(|time| (time, time as f64)).collect::<Vec<_>>();
        assert_eq!(values(&samples(3)), [0.0, 1.0, 2.0]);
        let means = values(&samples(600));
        assert_eq!((means.len(), means[0], means[199]), (200, 1.0, 598.0));
        assert!(values(&[]).is_empty());
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
