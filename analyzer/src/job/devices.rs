//! Device counters during the steps: activity, power, clocks, memory in use.

use std::collections::BTreeMap;

use crate::{
    figures::{CountedSteps, CounterFigures, DeviceFigures, SM_CLOCK},
    rank::{device_samples::MEMORY_USED_BY_PROCESS, result::RankResult, step_windows::StepWindow},
};

/// How many values of a counter are told, at most.
const MOST_VALUES: usize = 256;

/// What every device said during the steps that count.
pub(crate) fn devices(ranks: &[RankResult], counted: &CountedSteps) -> Vec<DeviceFigures> {
    let of = |rank: &RankResult| {
        let steps = rank.steps.iter().map(|(window, ..)| window).filter(|window| counted.counts(window.step));
        let steps: Vec<&StepWindow> = if counted.whole { Vec::new() } else { steps.collect() };
        let has_steps = !counted.whole;
        let (mut counters, mut over_time) = (BTreeMap::new(), BTreeMap::new());
        for (name, samples) in rank.device.during(&steps, has_steps) {
            counters.extend(counter_figures(samples).map(|figures| (name.clone(), figures)));
            over_time.insert(name.clone(), values(samples));
        }
        // Every process says what it has itself; of a device that is all when another one samples it.
        let is_sampled = counters.keys().any(|name| name != MEMORY_USED_BY_PROCESS);
        is_sampled.then_some(DeviceFigures {
            rank: rank.info.rank,
            counters,
            over_time,
            highest_clock: rank.device.highest(SM_CLOCK),
        })
    };
    ranks.iter().filter_map(of).collect()
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

#[cfg(test)]
mod tests {
    use stepscope_traces::Step;

    use super::*;
    use crate::rank::device_samples::DeviceSamples;

    #[test]
    fn samples_of_the_steps_are_counted() {
        let samples =
            DeviceSamples::made_of(&[("gpu.power", &[(0, 90.0), (6, 200.0), (10, 500.0), (20, 700.0), (31, 80.0)])]);
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
}
