//! Goes through a rank's activity once, and adds up where its time goes.

use stepscope_traces::Rank;

use crate::{
    figures::{Partition, RankFigures},
    rank::{
        activity::Activities,
        breakdown::BreakdownSum,
        kernel_sums::KernelSums,
        partition::add_slice,
        step_parts::RankParts,
        step_windows::StepWindow,
        sweep::{Slice, sweep},
    },
    selection::StepRange,
};

/// The figures of a rank in the steps that are wanted, and where the time of every step goes. Parts are of the steps that
/// are wanted, `chosen`.
pub(super) fn reduce(
    rank: Rank,
    activities: &Activities,
    (every_step, chosen): (&[StepWindow], &[StepWindow]),
    wanted: StepRange,
    kernels: &KernelSums,
    mut parts: Option<&mut RankParts>,
) -> (RankFigures, Vec<Partition>) {
    let (mut whole, mut breakdown) = (Partition::default(), BreakdownSum::new(activities));
    let mut numbers = 0..;
    let of_chosen = |window: &StepWindow| wanted.has(Some(window.step)).then(|| numbers.next())?;
    let numbers: Vec<Option<usize>> = every_step.iter().map(of_chosen).collect();
    let partitions = partitions(activities, every_step, |window, slice| {
        if !wanted.has(window.map(|window| every_step[window].step)) {
            return;
        }
        add_slice(&mut whole, slice);
        breakdown.add(slice, activities);
        // Without steps all of the time is one part.
        let part = window.map_or(chosen.is_empty().then_some(0), |window| numbers[window]);
        if let (Some(parts), Some(part)) = (parts.as_mut(), part) {
            parts.add(part, slice, activities);
        }
    });
    if let Some(parts) = parts {
        parts.count(chosen, activities);
    }
    let figures = RankFigures {
        rank,
        partition: whole.finished(),
        kernel_count: kernels.kernel_count(),
        breakdown: breakdown.finish(activities),
    };
    (figures, partitions)
}

/// Where the time of every step goes. `show` is shown every stretch of time, with the window it is in.
pub(super) fn partitions(
    activities: &Activities,
    steps: &[StepWindow],
    mut show: impl FnMut(Option<usize>, &Slice<'_>),
) -> Vec<Partition> {
    let mut borders: Vec<i64> = steps.iter().flat_map(|step| [step.start, step.end]).collect();
    borders.dedup();
    let mut partitions = vec![Partition::default(); steps.len()];
    let mut current = 0;
    sweep(activities, &borders, |slice| {
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
