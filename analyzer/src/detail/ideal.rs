//! What the passes of a step would be if each took as long as their mean, and handing over took no time: the schedule as it
//! was meant.

use stepscope_traces::{MicroBatch, Step};

use crate::{
    detail::step_passes::RankWork,
    figures::PipelineFigures,
    job::ideal_schedule::{NoIdeal, mean_costs, run_schedule},
    rank::work::{Pass, WorkItem},
};

/// The same work of one step, ideally: of each stage, in its order, in nanoseconds since the first begins.
pub fn ideal_work(
    pipeline: &PipelineFigures,
    step: Step,
    measured: &[RankWork],
) -> Result<Vec<Vec<WorkItem>>, NoIdeal> {
    let PipelineFigures { schedule, stages, micro_batches, chunks, .. } = *pipeline;
    let costs = mean_costs(schedule, measured.iter().map(|rank| rank.items.iter())).ok_or(NoIdeal::Unknown)?;
    let recorded = measured.iter().map(|rank| rank.items.len()).sum();
    let simulation = run_schedule(schedule, (stages, micro_batches, chunks), recorded, costs)?;
    let item = |timed: &stepscope_plan::TimedWork| {
        Some(WorkItem {
            step,
            micro_batch: MicroBatch(i32::try_from(timed.work.micro_batch).ok()?),
            pass: match timed.work.pass {
                stepscope_plan::Pass::Forward => Pass::Forward,
                stepscope_plan::Pass::Backward => Pass::Backward,
                stepscope_plan::Pass::Weights => Pass::Weights,
            },
            start: timed.start as i64,
            end: timed.end as i64,
        })
    };
    let stages: Option<_> = simulation.stages.iter().map(|stage| stage.iter().map(item).collect()).collect();
    stages.ok_or(NoIdeal::Unknown)
}

#[cfg(test)]
mod tests {
    use stepscope_plan::Schedule;
    use stepscope_traces::Rank;

    use super::*;

    #[test]
    fn uneven_passes_become_even() {
        let figures = PipelineFigures {
            stages: 2,
            micro_batches: 2,
            schedule: Schedule::Gpipe,
            chunks: 1,
            bubble: None,
            ideal_bubble: 1.0 / 3.0,
            inferred: false,
            per_stage: Vec::new(),
            per_step: Vec::new(),
            slowest_stage: None,
            balanced_bubble: None,
        };
        let item = |micro_batch, pass, start, end| WorkItem {
            step: Step(4),
            micro_batch: MicroBatch(micro_batch),
            pass,
            start,
            end,
        };
        let stage = |rank, passes: [(i64, i64); 4]| {
            let items = [(0, Pass::Forward), (1, Pass::Forward), (0, Pass::Backward), (1, Pass::Backward)];
            let items = items.into_iter().zip(passes);
            RankWork {
                rank: Rank(rank),
                items: items.map(|((batch, pass), (start, end))| item(batch, pass, start, end)).collect(),
            }
        };
        // Forward passes take 10 on the first stage and 30 on the second one, backward passes 40 on both.
        let measured = [
            stage(0, [(0, 10), (10, 20), (120, 160), (160, 200)]),
            stage(1, [(15, 45), (45, 75), (75, 115), (120, 160)]),
        ];
        let ideal = ideal_work(&figures, Step(4), &measured).unwrap();
        let times = |stage: &[WorkItem]| stage.iter().map(|item| (item.start, item.end)).collect::<Vec<_>>();
        assert_eq!(times(&ideal[0]), [(0, 20), (20, 40), (100, 140), (140, 180)]);
        assert_eq!(times(&ideal[1]), [(20, 40), (40, 60), (60, 100), (100, 140)]);
        assert_eq!(ideal_work(&figures, Step(4), &[]), Err(NoIdeal::Unknown));
    }
}
