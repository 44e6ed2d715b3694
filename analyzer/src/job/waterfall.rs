//! From a device's peak to what is used of it: what takes the rest of a step.
//!
//! For users, it is defined in `docs/src/metrics.md#the-waterfall`.
//!
//! Of each rank the parts are those of its time in the steps that count: compute by family, exposed communication by axis,
//! exposed copies, and idle time by reason. Some of them are told apart further. What is computed again is no family's. A stage
//! that waits for another is in the bubble, be it idle or in a message. Exposed communication in which a rank waits for others
//! is that of stragglers. The model's FLOPs would take MFU × the step at the peak: that is taken from the families that
//! multiply, in proportion to their FLOPs, or, where those are not known, to their time. So the parts add up to the step.

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
        let parts: Vec<Parts> = ranks
            .iter()
            .enumerate()
            .map(|(index, rank)| {
                let mut parts = parts(&rank.time, &self.waits[index]);
                self.set_bubble_apart(&mut parts, rank, index);
                set_model_apart(&mut parts, &rank.time, self.mfu, &flops);
                parts
            })
            .collect();
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

/// Takes what the model's FLOPs would take at the peak from the families that multiply.
fn set_model_apart(
    parts: &mut Parts,
    time: &CountedTime,
    mfu: Option<f64>,
    flops: &Option<BTreeMap<Family, (f64, i64)>>,
) {
    let Some(mfu) = mfu else { return };
    let multiplies = |family: Family| matches!(family, Family::Matmul | Family::Attention | Family::Convolution);
    let weight = |of: &FamilyTime| match flops {
        Some(flops) => {
            flops.get(&of.family).map_or(0.0, |(flops, all_ns)| flops * of.time_ns as f64 / (*all_ns).max(1) as f64)
        }
        None => of.time_ns as f64,
    };
    let weights = time.families.iter().filter(|of| multiplies(of.family)).map(|of| (of.family, weight(of)));
    let mut weights: Vec<(Family, f64)> = weights.filter(|(_, weight)| *weight > 0.0).collect();
    // A program of kernels that nobody knows multiplies all the same.
    if weights.is_empty() {
        weights.extend(time.families.first().map(|of| (of.family, 1.0)));
    }
    let whole: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let model_ns = mfu * time.partition.span_ns as f64;
    for (family, weight) in weights {
        let share = (model_ns * weight / whole).round() as i64;
        *parts.entry(WaterfallPart::Kernels { family }).or_default() -= share;
        *parts.entry(WaterfallPart::Mfu).or_default() += share;
    }
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
