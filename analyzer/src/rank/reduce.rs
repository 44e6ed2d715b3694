//! Goes through a rank's activity once, and adds up where its time goes.

use crate::{
    figures::{Breakdown, CountedSteps, Partition},
    rank::{
        activity::Activities,
        breakdown::BreakdownSum,
        idle_before::IdleBefore,
        partition::add_slice,
        step_parts::RankParts,
        step_windows::StepWindow,
        sweep::{Slice, sweep},
    },
};

/// Where a rank's time goes.
pub(super) struct Reduced {
    /// Over the whole recording.
    pub(super) whole: (Partition, Breakdown),
    /// In the steps that count.
    pub(super) counted: (Partition, Breakdown),
    /// Idle time of the steps that count.
    pub(super) idle_before: IdleBefore,
    /// In every step.
    pub(super) steps: Vec<Partition>,
}

/// Goes through a rank's activity. `recorded` are the stretches of time in which it was recorded; the time of what lies
/// between them is nobody's.
pub(super) fn reduce(
    activities: &Activities,
    steps: &[StepWindow],
    recorded: &[(i64, i64)],
    counted: &CountedSteps,
    mut parts: Option<&mut RankParts>,
) -> Reduced {
    let mut times = [Partition::default(); 2];
    let mut breakdowns = [BreakdownSum::new(activities), BreakdownSum::new(activities)];
    let mut idle_before = IdleBefore::default();
    let partitions = partitions(activities, steps, recorded, |window, slice| {
        let side = usize::from(!counted.has(window.map(|window| steps[window].step)));
        idle_before.add(slice, side == 0, activities);
        add_slice(&mut times[side], slice);
        breakdowns[side].add(slice, activities);
        if let Some(parts) = parts.as_mut() {
            parts.add(window, slice, activities);
        }
    });
    if let Some(parts) = parts {
        parts.count(steps, activities);
    }
    let [counts, others] = times;
    let [breakdown, mut all] = breakdowns;
    all.add_all(&breakdown);
    Reduced {
        whole: (Partition::sum([&counts, &others]), all.finish(activities)),
        counted: (counts.finished(), breakdown.finish(activities)),
        idle_before,
        steps: partitions,
    }
}

/// Where the time of steps goes in which nothing ran: they are idle.
pub(super) fn nothing_ran(steps: &[StepWindow], counted: &CountedSteps) -> Reduced {
    let idle = |step: &StepWindow| {
        let length = step.end.saturating_sub(step.start);
        Partition { span_ns: length, idle_ns: length, ..Partition::default() }
    };
    let partitions: Vec<Partition> = steps.iter().map(idle).collect();
    let counts = steps.iter().zip(&partitions).filter(|(step, _)| counted.has(Some(step.step)));
    Reduced {
        whole: (Partition::sum(&partitions), Breakdown::default()),
        counted: (Partition::sum(counts.map(|(_, partition)| partition)), Breakdown::default()),
        idle_before: IdleBefore::default(),
        steps: partitions,
    }
}

/// Where the time of every step goes. `show` is shown every stretch of time that was recorded, with the window it is in.
pub(super) fn partitions(
    activities: &Activities,
    steps: &[StepWindow],
    recorded: &[(i64, i64)],
    mut show: impl FnMut(Option<usize>, &Slice<'_>),
) -> Vec<Partition> {
    let mut borders: Vec<i64> = steps.iter().flat_map(|step| [step.start, step.end]).collect();
    borders.extend(recorded.iter().flat_map(|(start, end)| [*start, *end]));
    borders.sort_unstable();
    borders.dedup();
    let mut partitions = vec![Partition::default(); steps.len()];
    let (mut current, mut looked) = (0, 0);
    sweep(activities, &borders, |slice| {
        while recorded.get(looked).is_some_and(|(_, end)| *end <= slice.start) {
            looked += 1;
        }
        if recorded.get(looked).is_none_or(|(start, _)| slice.start < *start) {
            return;
        }
        while steps.get(current).is_some_and(|step| step.end <= slice.start) {
            current += 1;
        }
        let inside = steps.get(current).filter(|step| step.start <= slice.start).map(|_| current);
        if let Some(step) = inside {
            add_slice(&mut partitions[step], slice);
        }
        show(inside, slice);
    });
    partitions.into_iter().map(Partition::finished).collect()
}
