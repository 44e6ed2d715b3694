//! Goes through a rank's activity once, and adds up where its time goes.

use crate::{
    figures::{Breakdown, CountedSteps, FamilyTime, IdleReason, IdleShare, Partition},
    rank::{
        activity::Activities,
        breakdown::BreakdownSum,
        family_times::FamilyTimes,
        idle_before::IdleBefore,
        idle_reasons::{IdleReasons, IdleTimes},
        partition::add_slice,
        stage_waits::StageWaits,
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
    /// Compute of the steps that count, by family; and what of it is computed again.
    pub(super) families: (Vec<FamilyTime>, i64),
    /// Idle time of the steps that count, by reason.
    pub(super) idle: Vec<IdleShare>,
    /// In every step.
    pub(super) steps: Vec<Partition>,
}

/// What is looked at besides sums, while a rank's activity is gone through.
pub(super) struct Looking<'a> {
    pub(super) families: FamilyTimes<'a>,
    pub(super) reasons: IdleReasons,
    /// None, where it is no stage.
    pub(super) waits: Option<&'a mut StageWaits>,
    pub(super) parts: Option<&'a mut RankParts>,
}

/// Goes through a rank's activity. `recorded` are the stretches of time in which it was recorded; the time of what lies
/// between them is nobody's.
pub(super) fn reduce(
    activities: &Activities,
    steps: &[StepWindow],
    recorded: &[(i64, i64)],
    counted: &CountedSteps,
    looking: Looking<'_>,
) -> Reduced {
    let Looking { mut families, mut reasons, mut waits, mut parts } = looking;
    let mut idle = IdleTimes::default();
    let mut times = [Partition::default(); 2];
    let mut breakdowns = [BreakdownSum::new(activities), BreakdownSum::new(activities)];
    let mut idle_before = IdleBefore::default();
    let partitions = partitions(activities, steps, recorded, |window, slice| {
        let side = usize::from(!counted.has(window.map(|window| steps[window].step)));
        idle_before.add(slice, side == 0, activities);
        add_slice(&mut times[side], slice);
        breakdowns[side].add(slice, activities);
        if side == 0 {
            families.add(slice, activities);
        }
        // Where all of the recording is one window, it is the first.
        let within = if counted.whole { Some(0) } else { window };
        if slice.owner().is_some() {
            if let Some((waits, window)) = waits.as_mut().zip(within) {
                waits.add(window, slice, activities);
            }
        } else {
            reasons.between(slice.start, slice.end, |stretch| {
                if side == 0 {
                    idle.add(stretch);
                }
                if let Some((waits, window)) = waits.as_mut().zip(within) {
                    waits.add_idle(window, stretch);
                }
            });
        }
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
        families: families.finish(),
        idle: idle.shares(),
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
    let time = Partition::sum(counts.map(|(_, partition)| partition));
    let idle = IdleShare { reason: IdleReason::Unknown, time_ns: time.idle_ns };
    Reduced {
        whole: (Partition::sum(&partitions), Breakdown::default()),
        counted: (time, Breakdown::default()),
        idle_before: IdleBefore::default(),
        families: Default::default(),
        idle: vec![idle],
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
