//! Which of the ranges that a program named are its steps.
//!
//! Programs call their steps what they like, and may have several kinds of ranges that could be it, inside each other. Taken
//! are those of PyTorch's profiler; else those that have numbers; else those that take most time. Where numbers do not
//! grow, as in a second epoch, or are missing, steps are counted.

use std::collections::HashMap;

use super::step_name::StepName;
use crate::ids::{Nanos, Step};

/// The ranges of a rank that may be steps.
#[derive(Debug, Default)]
pub(super) struct StepRanges(HashMap<String, Kind>);

/// Ranges that are called alike.
#[derive(Debug, Default)]
struct Kind {
    is_of_profiler: bool,
    ranges: Vec<StepRange>,
}

#[derive(Clone, Copy, Debug)]
struct StepRange {
    thread: Option<u32>,
    start: Nanos,
    duration: Nanos,
    number: Option<Step>,
    /// Which of the rank's annotations it is.
    index: usize,
}

impl StepRanges {
    /// Takes a range by its name.
    pub(super) fn take(&mut self, name: &StepName, thread: Option<u32>, start: Nanos, duration: Nanos, index: usize) {
        // Many call the optimizer's part of a step by this one word.
        if name.number.is_none() && name.words == "step " {
            return;
        }
        let kind = self.0.entry(name.words.clone()).or_default();
        kind.is_of_profiler = name.is_of_profiler();
        kind.ranges.push(StepRange { thread, start, duration, number: name.number, index });
    }

    /// The steps, by which of the annotations they are.
    pub(super) fn steps(self) -> Vec<(usize, Step)> {
        let steps = self.0.into_iter().filter(|(_, kind)| kind.has_numbers() || kind.ranges.len() > 1);
        let chosen = steps.max_by(|(one_name, one), (other_name, other)| {
            let order = |kind: &Kind| (kind.is_of_profiler, kind.has_numbers(), kind.duration());
            order(one).cmp(&order(other)).then_with(|| other_name.cmp(one_name))
        });
        chosen.map(|(_, kind)| kind.numbered()).unwrap_or_default()
    }
}

impl Kind {
    fn has_numbers(&self) -> bool {
        self.ranges.iter().all(|range| range.number.is_some())
    }

    fn duration(&self) -> i128 {
        self.ranges.iter().map(|range| i128::from(range.duration.0)).sum()
    }

    fn numbered(mut self) -> Vec<(usize, Step)> {
        self.ranges.sort_by_key(|range| (range.thread, range.start));
        let threads = || self.ranges.chunk_by(|one, next| one.thread == next.thread);
        let grow = threads().all(|own| own.is_sorted_by(|one, next| one.number < next.number));
        let number =
            |(count, range): (i32, &StepRange)| (range.index, range.number.filter(|_| grow).unwrap_or(Step(count)));
        threads().flat_map(|own| (0..).zip(own).map(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of ranges that follow each other, each as long as it says.
    fn steps(ranges: &[(&str, i64)]) -> Vec<(usize, i32)> {
        let (mut found, mut start) = (StepRanges::default(), 0);
        for (index, (name, duration)) in ranges.iter().enumerate() {
            if let Some(name) = StepName::of(name) {
                found.take(&name, Some(1), Nanos(start), Nanos(*duration), index);
            }
            start += duration;
        }
        let mut steps: Vec<(usize, i32)> = found.steps().into_iter().map(|(index, step)| (index, step.0)).collect();
        steps.sort_unstable();
        steps
    }

    #[test]
    fn one_kind_of_ranges_is_the_steps() {
        assert_eq!(steps(&[("step 4", 10), ("forward", 5), ("step 5", 10)]), [(0, 4), (2, 5)]);
        assert_eq!(steps(&[("iteration 4", 10), ("step 7", 2), ("iteration 5", 10)]), [(0, 4), (2, 5)], "the longest");
        assert_eq!(steps(&[("ProfilerStep#4", 1), ("step 7", 20)]), [(0, 4)], "those of the profiler");
        assert_eq!(steps(&[("train_step", 100), ("step 7", 1), ("train_step", 100)]), [(1, 7)], "those with numbers");
        assert_eq!(steps(&[("train_step", 100), ("train_step", 100)]), [(0, 0), (1, 1)], "counted");
        assert_eq!(steps(&[("step 0", 1), ("step 1", 1), ("step 0", 1)]), [(0, 0), (1, 1), (2, 2)], "another epoch");
        assert_eq!(steps(&[("train_step", 100)]), [], "one alone may be all of the training");
        assert_eq!(steps(&[("step", 1), ("step", 1)]), [], "the optimizer's");
        assert_eq!(steps(&[]), []);
    }
}
