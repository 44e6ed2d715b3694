//! Pipeline bubbles: the part of a step's passes in which a stage has nothing to do.
//!
//! For users, it is defined in `docs/src/metrics.md#pipeline-bubble`.
//!
//! Per step, W runs from the first forward work of any stage to the last backward work of any stage. A stage's bubble is
//! the part of W in which it has no forward or backward work in progress; `bubble` is the stages' sum over stages × |W|.
//! Replicas and tensor shards are pipelines of their own, each with its own W. Of a run, it is the sum over the steps that
//! count.
//!
//! Where no stage says what it worked on, its work is told from messages (`rank/work`). Failing that, it is what the stage
//! computed, and W runs from the first to the last of that. Either is inferred.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_traces::Step;

use crate::{
    figures::{CountedSteps, PipelineFigures, StageFigures, StepBubble},
    job::{
        clock::Alignment,
        ideal_schedule::{mean_costs, run_schedule},
        stages::Stages,
    },
    rank::{intervals::Intervals, result::RankResult, work::Pass},
};

/// The bubbles of a run with more than one stage.
pub(crate) fn pipeline(
    stages: &Stages,
    ranks: &[RankResult],
    alignment: &Alignment,
    counted: &CountedSteps,
) -> PipelineFigures {
    let counts = |step: Step| counted.has(Some(step));
    let mut sums: Vec<StageSum> = ranks.iter().map(|_| StageSum::default()).collect();
    let mut steps: BTreeMap<Step, (i64, i64)> = BTreeMap::new();
    for members in &stages.pipelines {
        for (step, window) in step_windows(members, ranks, alignment) {
            for &index in members {
                let work = work_in(step, &ranks[index], |time| alignment.align(index, time));
                let mut aside = StageSum::default();
                let sum = if counts(step) { &mut sums[index] } else { &mut aside };
                let idle = sum.add(&work, window);
                let (all_idle, all) = steps.entry(step).or_default();
                *all_idle += idle;
                *all += window.1 - window.0;
            }
        }
    }
    let total = |of: fn(&StageSum) -> i64| sums.iter().map(of).sum::<i64>();
    let (idle, window) = (total(StageSum::idle), total(|sum| sum.window));
    let share = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
    let members = stages.pipelines.iter().enumerate();
    let of_pipeline: HashMap<usize, usize> =
        members.rev().flat_map(|(pipeline, members)| members.iter().map(move |index| (*index, pipeline))).collect();
    let sums_of_ranks = ranks.iter().zip(&sums).zip(&stages.of_ranks).enumerate();
    let per_stage = sums_of_ranks.map(|(index, ((rank, sum), stage))| StageFigures {
        stage: *stage,
        rank: rank.info.rank,
        pipeline: of_pipeline.get(&index).copied(),
        bubble: share(sum.idle(), sum.window),
        warm_up_ns: sum.known(sum.warm_up),
        steady_ns: sum.known(sum.steady),
        cool_down_ns: sum.known(sum.cool_down),
        work_ns: {
            let unlabelled = rank.unlabelled_work.iter().filter(|(step, _)| counts(*step));
            let items = rank.work.iter().filter(|item| counts(item.step));
            unlabelled.map(|(_, work)| work.length()).sum::<i64>()
                + items.map(|item| item.end - item.start).sum::<i64>()
        },
    });
    let slowest = stages.of_ranks.iter().zip(&sums).max_by_key(|(_, sum)| sum.work).filter(|(_, sum)| sum.work > 0);
    PipelineFigures {
        stages: stages.count,
        micro_batches: stages.micro_batches,
        schedule: stages.schedule,
        chunks: stages.chunks,
        bubble: share(idle, window),
        ideal_bubble: stages.schedule.ideal_bubble(stages.count, stages.micro_batches, stages.chunks),
        inferred: stages.inferred || ranks.iter().any(RankResult::worked_on_what_is_inferred),
        slowest_stage: slowest.map(|(stage, _)| *stage),
        balanced_bubble: balanced(stages, ranks, &sums, &counts),
        per_stage: per_stage.collect(),
        per_step: steps
            .into_iter()
            .filter_map(|(step, (idle_ns, window_ns))| {
                Some(StepBubble { step, bubble: share(idle_ns, window_ns)?, idle_ns, window_ns })
            })
            .collect(),
    }
}

/// When each rank's stage is idle while its pipeline works on a step that counts, in the clock all ranks are aligned to;
/// never, where it is no stage.
pub(crate) fn idle_of_stages(
    stages: &Stages,
    ranks: &[RankResult],
    alignment: &Alignment,
    counted: &CountedSteps,
) -> Vec<Intervals> {
    let mut idle = vec![Intervals::default(); ranks.len()];
    for members in &stages.pipelines {
        let windows = step_windows(members, ranks, alignment).into_iter();
        let windows = windows.filter(|(step, _)| counted.has(Some(*step))).map(|(_, window)| window);
        let windows = Intervals::union_of(windows.collect());
        for &index in members {
            let rank = &ranks[index];
            let items = rank.work.iter().map(|item| (item.start, item.end));
            let unlabelled = rank.unlabelled_work.iter().flat_map(|(_, work)| work.iter());
            let align = |(start, end)| (alignment.align(index, start), alignment.align(index, end));
            idle[index] = windows.without(&Intervals::union_of(items.chain(unlabelled).map(align).collect()));
        }
    }
    idle
}

/// From the first forward to the last backward work of any stage, for each step.
fn step_windows(members: &[usize], ranks: &[RankResult], alignment: &Alignment) -> BTreeMap<Step, (i64, i64)> {
    let mut windows: BTreeMap<Step, (Option<i64>, Option<i64>)> = BTreeMap::new();
    for &index in members {
        for (step, computed) in &ranks[index].unlabelled_work {
            let (first, last) = windows.entry(*step).or_default();
            for (start, end) in computed.iter() {
                let (start, end) = (alignment.align(index, start), alignment.align(index, end));
                *first = Some(first.map_or(start, |first| first.min(start)));
                *last = Some(last.map_or(end, |last| last.max(end)));
            }
        }
        for item in &ranks[index].work {
            let (first, last) = windows.entry(item.step).or_default();
            match item.pass {
                Pass::Forward => {
                    let start = alignment.align(index, item.start);
                    *first = Some(first.map_or(start, |first| first.min(start)));
                }
                Pass::Backward | Pass::Weights => {
                    let end = alignment.align(index, item.end);
                    *last = Some(last.map_or(end, |last| last.max(end)));
                }
            }
        }
    }
    let whole = windows.into_iter().filter_map(|(step, (first, last))| Some((step, (first?, last?))));
    whole.filter(|(_, (first, last))| first < last).collect()
}

fn work_in(step: Step, rank: &RankResult, align: impl Fn(i64) -> i64) -> Intervals {
    let items = rank.work.iter().filter(|item| item.step == step).map(|item| (item.start, item.end));
    let unlabelled = rank.unlabelled_work.iter().filter(|(other, _)| *other == step).flat_map(|(_, work)| work.iter());
    Intervals::union_of(items.chain(unlabelled).map(|(start, end)| (align(start), align(end))).collect())
}

/// What a stage's time in the windows of all steps comes to.
#[derive(Clone, Copy, Default)]
struct StageSum {
    window: i64,
    work: i64,
    warm_up: i64,
    steady: i64,
    cool_down: i64,
}

impl StageSum {
    /// Adds a step; its idle time.
    fn add(&mut self, work: &Intervals, (from, to): (i64, i64)) -> i64 {
        let work = work.within(from, to);
        let (first, last) = (work.iter().next(), work.iter().last());
        let worked = work.length();
        let idle = to - from - worked;
        let (warm_up, cool_down) = match (first, last) {
            (Some((start, _)), Some((_, end))) => (start - from, to - end),
            _ => (idle, 0),
        };
        self.window += to - from;
        self.work += worked;
        self.warm_up += warm_up;
        self.cool_down += cool_down;
        self.steady += idle - warm_up - cool_down;
        idle
    }

    /// A part of the windows, where there are any: a pipeline of which a stage is missing has none.
    fn known(&self, part: i64) -> Option<i64> {
        (self.window > 0).then_some(part)
    }

    fn idle(&self) -> i64 {
        self.warm_up + self.steady + self.cool_down
    }
}

/// The bubble of the schedule run with the mean time of a forward and of a backward pass, on every stage.
fn balanced(stages: &Stages, ranks: &[RankResult], sums: &[StageSum], counts: &dyn Fn(Step) -> bool) -> Option<f64> {
    let worked = || ranks.iter().zip(sums).filter(|(_, sum)| sum.work > 0);
    let counted = || worked().map(|(rank, _)| rank.work.iter().filter(|item| counts(item.step)));
    let Stages { schedule, count, micro_batches, chunks, .. } = *stages;
    let costs = mean_costs(schedule, counted())?;
    let recorded = counted().map(Iterator::count).sum();
    Some(run_schedule(schedule, (count, micro_batches, chunks), recorded, costs).ok()?.bubble())
}
