//! Where the time of steps goes, added up.

use stepscope_analyzer::{Analysis, Partition, StepFigures};
use stepscope_traces::{Nanos, Rank, Step};

/// What time is divided into, in the order in which it is shown.
pub(super) const PARTS: [&str; 4] = ["compute", "exposed communication", "exposed copies", "idle"];

/// Some windows of time together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time {
    windows: i64,
    span: i64,
    /// In the order of [`PARTS`]; they add up to the span.
    parts: [i64; 4],
    communication: i64,
    hidden: i64,
}

impl Time {
    pub(super) fn add(&mut self, partition: &Partition) {
        let Partition { span_ns, compute_ns, exposed_communication_ns, exposed_copy_ns, idle_ns, .. } = *partition;
        self.windows += 1;
        self.span += span_ns;
        for (sum, part) in self.parts.iter_mut().zip([compute_ns, exposed_communication_ns, exposed_copy_ns, idle_ns]) {
            *sum += part;
        }
        self.communication += partition.communication_ns;
        self.hidden += partition.overlapped_communication_ns;
    }

    /// The mean length of a window.
    pub(super) fn span(&self) -> Nanos {
        Nanos(self.span / self.windows.max(1))
    }

    /// The mean of each part, and its share.
    pub(super) fn parts(&self) -> [(Nanos, f64); 4] {
        self.parts.map(|part| (Nanos(part / self.windows.max(1)), part as f64 / self.span.max(1) as f64))
    }

    /// The share of communication that compute hides; none without communication.
    pub(super) fn overlap(&self) -> Option<f64> {
        (self.communication > 0).then(|| self.hidden as f64 / self.communication as f64)
    }

    /// Some steps together.
    pub(super) fn sum(steps: &[(Step, Time)]) -> Time {
        let mut sum = Time::default();
        for (_, time) in steps {
            sum.windows += time.windows;
            sum.span += time.span;
            sum.parts.iter_mut().zip(time.parts).for_each(|(sum, part)| *sum += part);
            sum.communication += time.communication;
            sum.hidden += time.hidden;
        }
        sum
    }

    pub(super) fn of<'a>(partitions: impl IntoIterator<Item = &'a Partition>) -> Time {
        partitions.into_iter().fold(Time::default(), |mut time, partition| {
            time.add(partition);
            time
        })
    }
}

/// The steps that count; the first ones of a run do not.
pub(super) fn counted(analysis: &Analysis) -> impl Iterator<Item = &StepFigures> {
    let counts = |step: &&StepFigures| analysis.step_time.as_ref().is_some_and(|time| time.counts(step.step));
    analysis.steps.iter().filter(counts)
}

/// Of each rank, where the time of its steps goes; where there are no steps, all its time.
pub(super) fn by_rank(analysis: &Analysis) -> Vec<(Rank, Time)> {
    let of_rank = |rank: Rank| Time::of(counted(analysis).filter(|step| step.rank == rank).map(|step| &step.partition));
    let ranks = analysis.ranks.iter();
    if analysis.steps.is_empty() {
        ranks.map(|rank| (rank.rank, Time::of([&rank.partition]))).collect()
    } else {
        ranks.map(|rank| (rank.rank, of_rank(rank.rank))).collect()
    }
}

/// Where the time of all ranks goes.
pub(super) fn of_all(analysis: &Analysis) -> Time {
    if analysis.steps.is_empty() {
        Time::of(analysis.ranks.iter().map(|rank| &rank.partition))
    } else {
        Time::of(counted(analysis).map(|step| &step.partition))
    }
}
