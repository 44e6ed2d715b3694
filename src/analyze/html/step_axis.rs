//! Time by steps: each as wide as any other, however long it took, since a step that warms up may take as long as all
//! others together.

use stepscope_analyzer::Analysis;
use stepscope_traces::{Rank, Step};

/// Where moments of a rank lie, in steps from the first; what is before the first has the width of one.
pub(super) struct StepAxis {
    /// Where each step begins, and at last where the last one ends.
    begins: Vec<i64>,
    first: Step,
}

impl StepAxis {
    /// None where there are no two steps: there is nothing to make alike.
    pub(super) fn of(analysis: &Analysis, rank: Rank) -> Option<StepAxis> {
        let mut steps: Vec<_> = analysis.steps.iter().filter(|step| step.rank == rank).collect();
        steps.sort_by_key(|step| step.start_ns);
        let (first, last) = (steps.first()?, steps.last().filter(|_| steps.len() > 1)?);
        let begins = steps.iter().map(|step| step.start_ns).chain([last.start_ns + last.duration_ns]).collect();
        Some(StepAxis { begins, first: first.step })
    }

    /// How many steps there are.
    pub(super) fn steps(&self) -> usize {
        self.begins.len() - 1
    }

    /// Where a moment lies, if all there is begins and ends at these.
    pub(super) fn place(&self, time: i64, (from, to): (i64, i64)) -> f64 {
        let within = |time: i64, begin: i64, end: i64| {
            let length = end.saturating_sub(begin).max(1) as f64;
            (time.saturating_sub(begin) as f64 / length).clamp(0.0, 1.0)
        };
        let begun = self.begins.partition_point(|begin| *begin <= time);
        match begun {
            0 => within(time, from, self.begins[0]) - 1.0,
            _ if begun == self.begins.len() => {
                let end = self.begins[begun - 1];
                self.steps() as f64 + within(time, end, to) / 4.0
            }
            _ => (begun - 1) as f64 + within(time, self.begins[begun - 1], self.begins[begun]),
        }
    }

    /// What stands at a place of the axis.
    pub(super) fn label(&self, place: f64) -> String {
        let whole = (place - place.round()).abs() < 1e-6;
        match place.round() as i64 {
            step @ 0.. if whole && (step as usize) < self.steps() => format!("step {}", i64::from(self.first.0) + step),
            _ => String::new(),
        }
    }
}
