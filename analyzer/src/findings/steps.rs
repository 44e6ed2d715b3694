//! Steps that are not as the others.

use stepscope_plan::text;
use stepscope_traces::Phase;

use super::{Check, Found};
use crate::figures::{Analysis, StepFigures};

/// A step that took far longer than the others.
pub(super) struct LongStep;

impl Check for LongStep {
    const KIND: &'static str = "long-step";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.05;
        const LEAST_RATIO: f64 = 3.0;
        let time = analysis.step_time.as_ref()?;
        let slowest = analysis.counted_job_steps().max_by_key(|step| step.duration_ns)?;
        let of_its_rank = analysis.counted_steps().filter(|step| step.rank == slowest.slowest);
        let longest = of_its_rank.clone().find(|step| step.step == slowest.step)?;
        let of_its_rank: i64 = of_its_rank.map(|step| step.duration_ns).sum();
        let share = (longest.duration_ns - time.median_ns).max(0) as f64 / of_its_rank.max(1) as f64;
        let ratio = longest.duration_ns as f64 / time.median_ns.max(1) as f64;
        (share >= LEAST_SHARE && ratio >= LEAST_RATIO).then(|| Found {
            share,
            summary: format!(
                "step {} took {ratio:.0} times as long as the median step{}",
                longest.step,
                because(longest)
            ),
            evidence: format!(
                "{} on rank {}; the excess is {} of all step time, and lowers the mean throughput and MFU",
                text::duration(longest.duration_ns),
                longest.rank,
                text::rough_percent(share)
            ),
            advice: match longest.includes.last() {
                Some(Phase::Checkpoint) => "save less often, in parts on all ranks, or asynchronously".into(),
                Some(_) => "evaluate less often, or on fewer samples".into(),
                None => "check that step for a checkpoint, an evaluation, late input data, or a stalled host".into(),
            },
            ranks: vec![longest.rank],
            steps: vec![longest.step],
            lost_ns: Some((longest.duration_ns - time.median_ns) / time.count.max(1) as i64),
            ..Found::default()
        })
    }
}

/// What a step includes besides training, as a reason.
fn because(step: &StepFigures) -> String {
    let does = step.includes.iter().map(|phase| match phase {
        Phase::Checkpoint => "saves a checkpoint",
        _ => "evaluates",
    });
    let does: Vec<&str> = does.collect();
    if does.is_empty() { String::new() } else { format!(": it {}", text::listed(&does)) }
}

/// A warm-up of many steps.
pub(super) struct LongWarmUp;

impl Check for LongWarmUp {
    const KIND: &'static str = "long-warm-up";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_STEPS: usize = 6;
        let warm_up = &analysis.window.warm_up;
        let median = analysis.step_time.as_ref()?.median_ns;
        let first = analysis.steps.first()?.rank;
        let of_first = |step: &&StepFigures| step.rank == first && warm_up.contains(&step.step);
        let excess: i64 = analysis.steps.iter().filter(of_first).map(|step| step.duration_ns - median).sum();
        (warm_up.len() >= LEAST_STEPS && excess > median).then(|| Found {
            share: 0.0,
            summary: format!("{} steps are slower than those after them: a long warm-up", warm_up.len()),
            evidence: format!("together they take {} longer than as many others", text::duration(excess)),
            advice: "look for compilation again and again (shapes that change), autotuning, or caches that fill".into(),
            steps: warm_up.clone(),
            ..Found::default()
        })
    }
}
