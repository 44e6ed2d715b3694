//! The answers that come with a synthetic run, counted by the plainest means.

use std::collections::BTreeMap;

use crate::{
    ids::{Nanos, Rank, Stage, Step},
    vocabulary::{MemoryCategory, SpanKind},
};

/// The truth about a run.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Of each rank, in order.
    pub ranks: Vec<RankTruth>,
    /// Of the pipeline, if there is one.
    pub pipeline: Option<PipelineTruth>,
}

/// The truth about one rank.
#[derive(Clone, Debug)]
pub struct RankTruth {
    /// The rank.
    pub rank: Rank,
    /// Its stage, if there is a pipeline.
    pub stage: Option<Stage>,
    /// What its clock shows at true time zero.
    pub clock_offset: Nanos,
    /// What its clock gains in a second of true time.
    pub clock_drift: i64,
    /// Rows of the spans table.
    pub spans: u64,
    /// Of those, kernels, those that communicate included.
    pub kernels: u64,
    /// Rows of the memory table.
    pub memory_events: u64,
    /// Rows of the counters table.
    pub counter_samples: u64,
    /// Each step.
    pub steps: Vec<StepTruth>,
    /// Memory over the whole run.
    pub memory: MemoryTruth,
    /// How long it waited in collectives for other ranks, in true time.
    pub waited: Nanos,
}

/// The truth about one step of one rank.
#[derive(Clone, Debug)]
pub struct StepTruth {
    /// The step.
    pub step: Step,
    /// When its first activity begins.
    pub start: Nanos,
    /// Where its time went.
    pub figures: Figures,
    /// The loss that was recorded.
    pub loss: f64,
    /// The tokens that were recorded.
    pub tokens: f64,
}

/// Where time went, by the contract's definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// From the first start to the last end.
    pub span: Nanos,
    /// Covered by kernels.
    pub compute: Nanos,
    /// Covered by communication.
    pub communication: Nanos,
    /// Covered by both.
    pub overlapped_communication: Nanos,
    /// Covered by copies and fills.
    pub copy: Nanos,
    /// Covered by copies and fills and by nothing else.
    pub exposed_copy: Nanos,
    /// Covered by nothing.
    pub idle: Nanos,
}

impl Figures {
    /// Communication that nothing hides.
    pub fn exposed_communication(&self) -> Nanos {
        self.communication - self.overlapped_communication
    }

    /// The share of communication that compute hides.
    pub fn overlap(&self) -> Option<f64> {
        (self.communication.0 > 0).then(|| self.overlapped_communication.0 as f64 / self.communication.0 as f64)
    }

    /// Goes through every border in a window and asks what is going on between it and the next.
    pub(super) fn count(activity: &[(SpanKind, Nanos, Nanos)], from: Nanos, to: Nanos) -> Figures {
        let class = |kind: SpanKind| usize::from(kind.is_communication()) + 2 * usize::from(kind.is_copy());
        let mut borders = vec![(from, 0, 0), (to, 0, 0)];
        for &(kind, start, end) in activity {
            borders.push((start.clamp(from, to), class(kind), 1));
            borders.push((end.clamp(from, to), class(kind), -1));
        }
        borders.sort_unstable();
        let mut figures = Figures { span: to - from, ..Figures::default() };
        let mut active = [0_i32; 3];
        for pair in borders.windows(2) {
            active[pair[0].1] += pair[0].2;
            let length = pair[1].0 - pair[0].0;
            let [compute, communication, copy] = active.map(|count| count > 0);
            let mut add = |on: bool, figure: fn(&mut Figures) -> &mut Nanos| {
                if on {
                    *figure(&mut figures) = *figure(&mut figures) + length;
                }
            };
            add(compute, |figures| &mut figures.compute);
            add(communication, |figures| &mut figures.communication);
            add(compute && communication, |figures| &mut figures.overlapped_communication);
            add(copy, |figures| &mut figures.copy);
            add(copy && !compute && !communication, |figures| &mut figures.exposed_copy);
            add(!copy && !compute && !communication, |figures| &mut figures.idle);
        }
        figures
    }
}

/// The truth about a rank's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTruth {
    /// The most that was allocated at once.
    pub peak_bytes: u64,
    /// When that was reached first.
    pub peak_time: Nanos,
    /// In which step.
    pub peak_step: Option<Step>,
    /// What was allocated then.
    pub at_peak: BTreeMap<MemoryCategory, u64>,
    /// What is allocated after the last event.
    pub at_end: BTreeMap<MemoryCategory, u64>,
    /// The most that was taken from the device at once.
    pub reserved_peak_bytes: u64,
}

/// The truth about a pipeline, in true time.
#[derive(Clone, Debug)]
pub struct PipelineTruth {
    /// What the schedule leaves idle when all work takes the same time.
    pub ideal_bubble: f64,
    /// Of each step: from the first forward to the last backward.
    pub window: Vec<Nanos>,
    /// Of each step and stage: the part of the window without work.
    pub idle: Vec<Vec<Nanos>>,
}

impl PipelineTruth {
    /// The bubble of a step: the idle share of all stages.
    pub fn bubble(&self, step: usize) -> f64 {
        let idle: i64 = self.idle[step].iter().map(|idle| idle.0).sum();
        idle as f64 / (self.idle[step].len() as i64 * self.window[step].0) as f64
    }
}
