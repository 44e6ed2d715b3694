//! From a device's peak to what is used of it: what takes the rest of a step.
//!
//! For users, it is defined in `docs/src/metrics.md#the-waterfall`.
//!
//! Of each rank the parts are those of its time in the steps that count: compute by family, exposed communication by axis,
//! exposed copies, and idle time by reason. Some of them are told apart further. What is computed again is no family's. A stage
//! that waits for another is in the bubble, be it idle or in a message. Exposed communication in which a rank waits for others
//! is that of stragglers. The model's FLOPs would take MFU × the step at the peak: that is taken from the families that
//! multiply, in proportion to their FLOPs, or, where those are not known, to their time. So the parts add up to the step. None
//! of them gives more than it takes; where all of them take less than the model would at the peak, the peak is too low, and
//! nothing is set apart.

use std::collections::BTreeMap;

use stepscope_plan::Axis;
use stepscope_traces::Family;

use crate::{
    figures::{CountedSteps, CountedTime, FamilyTime, WaterfallPart, WaterfallRow, divided},
    job::{clock::Alignment, launched::JobKernels},
    rank::{intervals::Intervals, result::RankResult, stage_waits::Waiting},
};

/// What takes the time of a rank, in all steps that count.
pub(crate) type Parts = BTreeMap<WaterfallPart, i64>;

/// Exposed waiting of one rank for others, by axis.
pub(crate) type ExposedWaits = BTreeMap<Option<Axis>, i64>;

/// What the waterfall is made of besides each rank's time.
pub(crate) struct Waterfalls<'a> {
    pub(crate) alignment: &'a Alignment,
    /// When each rank's stage has nothing to do, if it is one.
    pub(crate) bubbles: &'a [Intervals],
    pub(crate) counted: &'a CountedSteps,
    /// Of each rank.
    pub(crate) waits: &'a [ExposedWaits],
    pub(crate) kernels: &'a JobKernels<'a>,
    pub(crate) mfu: Option<f64>,
}

impl Waterfalls<'_> {
    /// The waterfall of the job, which is the mean of its ranks; and what the time of each rank goes to.
    pub(crate) fn of(&self, ranks: &[RankResult]) -> (Vec<WaterfallRow>, Vec<Vec<WaterfallRow>>) {
        let flops = flops_by_family(self.kernels);
        let mut parts: Vec<Parts> = ranks
            .iter()
            .enumerate()
            .map(|(index, rank)| {
                let mut parts = parts(&rank.time, &self.waits[index]);
                self.set_bubble_apart(&mut parts, rank, index);
                parts
            })
            .collect();
        if let Some(mfu) = self.mfu {
            let mut shares: Vec<ModelShare> =
                (0..).zip(ranks).flat_map(|(rank, of)| shares(rank, &of.time, mfu, &flops)).collect();
            if fit(&mut shares) {
                shares.iter().for_each(|share| share.set_apart(&mut parts));
            }
        }
        let windows: i128 = ranks.iter().map(|rank| i128::from(rank.time.windows)).sum();
        let of_ranks = parts.iter().zip(ranks).map(|(parts, rank)| rows(parts, rank.time.windows.into())).collect();
        let mut all = Parts::new();
        for (part, time) in parts.iter().flatten() {
            *all.entry(*part).or_default() += time;
        }
        (rows(&all, windows), of_ranks)
    }

    /// Sets apart what a stage waits in the bubble.
    fn set_bubble_apart(&self, parts: &mut Parts, rank: &RankResult, index: usize) {
        for wait in rank.stage_waits.iter().flat_map(|waits| &waits.waits) {
            let [start, end] = [wait.start, wait.end].map(|time| self.alignment.align(index, time));
            let part = match wait.waiting {
                Waiting::Idle(reason) => WaterfallPart::Idle { reason },
                Waiting::Exposed { axis, .. } => WaterfallPart::Communication { axis },
            };
            let counts = rank.counted.whole
                || rank.steps.get(wait.window).is_some_and(|(window, ..)| self.counted.counts(window.step));
            let in_bubble = self.bubbles[index].covered(start, end).min(wait.end - wait.start);
            if let Some(time) = parts.get_mut(&part).filter(|_| counts) {
                let moved = in_bubble.min(*time);
                *time -= moved;
                *parts.entry(WaterfallPart::Bubble).or_default() += moved;
            }
        }
    }
}

/// The parts of a rank's time.
fn parts(time: &CountedTime, waits: &ExposedWaits) -> Parts {
    let mut parts = Parts::new();
    let mut add = |part: WaterfallPart, time: i64| *parts.entry(part).or_default() += time;
    for FamilyTime { family, time_ns } in &time.families {
        add(WaterfallPart::Kernels { family: *family }, *time_ns);
    }
    for idle in &time.idle {
        add(WaterfallPart::Idle { reason: idle.reason }, idle.time_ns);
    }
    for share in &time.breakdown.axes {
        let waiting = waits.get(&share.axis).copied().unwrap_or(0).min(share.exposed_ns);
        add(WaterfallPart::Stragglers, waiting);
        add(WaterfallPart::Communication { axis: share.axis }, share.exposed_ns - waiting);
    }
    add(WaterfallPart::Copies, time.partition.exposed_copy_ns);
    add(WaterfallPart::Recomputation, time.recomputation_ns);
    parts
}

/// The FLOPs of families that multiply, and their time; none, where those of none are known.
fn flops_by_family(kernels: &JobKernels<'_>) -> Option<BTreeMap<Family, (f64, i64)>> {
    let mut flops: BTreeMap<Family, (f64, i64)> = BTreeMap::new();
    for kernel in kernels.kernels.iter().filter(|kernel| kernel.multiplies()) {
        let (all, time) = flops.entry(kernel.kind.family).or_default();
        *all += kernel.sum.flops - kernel.sum.flops_again;
        *time += kernel.sum.total_ns;
    }
    flops.values().any(|(flops, _)| *flops > 0.0).then_some(flops)
}

/// What of a family's time on a rank the model's FLOPs would take at the peak.
#[derive(Clone, Debug, PartialEq)]
struct ModelShare {
    rank: usize,
    family: Family,
    /// All of the family's time.
    time_ns: i64,
    model_ns: i64,
}

impl ModelShare {
    /// Takes it from the family, in the parts of all ranks.
    fn set_apart(&self, parts: &mut [Parts]) {
        let parts = &mut parts[self.rank];
        *parts.entry(WaterfallPart::Kernels { family: self.family }).or_default() -= self.model_ns;
        *parts.entry(WaterfallPart::Mfu).or_default() += self.model_ns;
    }
}

/// What the model's FLOPs would take at the peak on a rank, by family that multiplies.
fn shares(rank: usize, time: &CountedTime, mfu: f64, flops: &Option<BTreeMap<Family, (f64, i64)>>) -> Vec<ModelShare> {
    let multiplies = |family: Family| matches!(family, Family::Matmul | Family::Attention | Family::Convolution);
    let weight = |of: &FamilyTime| match flops {
        Some(flops) => {
            flops.get(&of.family).map_or(0.0, |(flops, all_ns)| flops * of.time_ns as f64 / (*all_ns).max(1) as f64)
        }
        None => of.time_ns as f64,
    };
    let weights = time.families.iter().filter(|of| multiplies(of.family)).map(|of| (of, weight(of)));
    let mut weights: Vec<(&FamilyTime, f64)> = weights.filter(|(_, weight)| *weight > 0.0).collect();
    // A program of kernels that nobody knows multiplies all the same.
    if weights.is_empty() {
        weights.extend(time.families.first().map(|of| (of, 1.0)));
    }
    let whole: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let model_ns = mfu * time.partition.span_ns as f64;
    let share = |(of, weight): (&FamilyTime, f64)| ModelShare {
        rank,
        family: of.family,
        time_ns: of.time_ns,
        model_ns: (model_ns * weight / whole).round() as i64,
    };
    weights.into_iter().map(share).collect()
}

/// Has no family give more than it takes: the others give that instead, in proportion to what they have left. False where all of
/// them together take less than the model would.
fn fit(shares: &mut [ModelShare]) -> bool {
    let mut beyond: i128 = 0;
    for share in shares.iter_mut() {
        beyond += i128::from((share.model_ns - share.time_ns).max(0));
        share.model_ns = share.model_ns.min(share.time_ns);
    }
    let mut left: i128 = shares.iter().map(|share| i128::from(share.time_ns - share.model_ns)).sum();
    if beyond > left {
        return false;
    }
    for share in shares {
        let own = i128::from(share.time_ns - share.model_ns);
        // Of what is still to be given, by what is still left: the last one gives the rest.
        let given = (beyond * own).checked_div(left).unwrap_or(0);
        share.model_ns += given as i64;
        (beyond, left) = (beyond - given, left - own);
    }
    true
}

/// The lines of a waterfall: parts of so many steps, each as long as in the mean of them.
fn rows(parts: &Parts, windows: i128) -> Vec<WaterfallRow> {
    let mut parts: Vec<(WaterfallPart, i64)> = parts.iter().map(|(part, time)| (*part, *time)).collect();
    parts.retain(|(_, time)| *time != 0);
    // Kinds in their order, and of each what takes most first.
    let kind = |part: &WaterfallPart| match part {
        WaterfallPart::Kernels { .. } => 0,
        WaterfallPart::Idle { .. } => 1,
        WaterfallPart::Communication { .. } => 2,
        WaterfallPart::Copies => 3,
        WaterfallPart::Bubble => 4,
        WaterfallPart::Recomputation => 5,
        WaterfallPart::Stragglers => 6,
        WaterfallPart::Mfu => 7,
    };
    parts.sort_by_key(|(part, time)| (kind(part), -time, *part));
    let times: Vec<i128> = parts.iter().map(|(_, time)| i128::from(*time)).collect();
    let whole: i128 = times.iter().sum();
    let row = |((part, time), time_ns): ((WaterfallPart, i64), i64)| WaterfallRow {
        part,
        time_ns,
        ms: time_ns as f64 / 1e6,
        points: 100.0 * time as f64 / whole.max(1) as f64,
    };
    let means = divided(&times, windows);
    parts.into_iter().zip(means).map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares_of(times: &[(i64, i64)]) -> Vec<ModelShare> {
        let share = |(rank, (time_ns, model_ns)): (usize, &(i64, i64))| ModelShare {
            rank,
            family: Family::Matmul,
            time_ns: *time_ns,
            model_ns: *model_ns,
        };
        times.iter().enumerate().map(share).collect()
    }

    #[test]
    fn no_family_gives_more_than_it_takes() {
        let mut shares = shares_of(&[(100, 130), (90, 40), (50, 40)]);
        assert!(fit(&mut shares));
        assert_eq!(shares.iter().map(|share| share.model_ns).collect::<Vec<_>>(), [100, 65, 45]);
        assert!(!fit(&mut shares_of(&[(100, 130), (20, 10)])), "the peak is too low");
        let mut enough = shares_of(&[(100, 30), (20, 10)]);
        assert!(fit(&mut enough));
        assert_eq!(enough, shares_of(&[(100, 30), (20, 10)]));
    }

    proptest! {
        #[test]
        fn what_the_model_takes_stays_the_same(
            times in prop::collection::vec((0..1_000_000_i64, 0..1_500_000_i64), 0..12),
        ) {
            let mut shares = shares_of(&times);
            let all: i64 = times.iter().map(|(_, model_ns)| model_ns).sum();
            prop_assert_eq!(fit(&mut shares), all <= times.iter().map(|(time_ns, _)| time_ns).sum());
            if all <= times.iter().map(|(time_ns, _)| time_ns).sum() {
                prop_assert_eq!(shares.iter().map(|share| share.model_ns).sum::<i64>(), all);
                prop_assert!(shares.iter().all(|share| share.model_ns <= share.time_ns));
            }
        }
    }
}
