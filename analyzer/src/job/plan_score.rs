//! Predicted against measured: what `plan` says of a run of our trainer, and what came of it.
//!
//! For users, it is defined in `docs/src/metrics.md#predicted-and-measured`. The prediction is that of `stepscope plan` for
//! the model and the layout that the run says. Times are compared only where they mean the same: each rank had a device to
//! itself, and it is one that is known.

use std::collections::BTreeMap;

use stepscope_plan::{Assumptions, Configuration, Convention, Device, ModelShape, ParallelLayout};
use stepscope_traces::MemoryCategory;

use crate::figures::{Analysis, PlanScore, RankMemory, RunSummary, ScoredFigure};

/// What a run of our trainer says of itself.
pub(crate) fn trained(run: &RunSummary) -> Option<(&ModelShape, ParallelLayout)> {
    let layout = run.layout.and_then(|layout| layout.said)?;
    Some((run.model.as_ref()?.shape()?, layout))
}

/// The device of a run, if its times can be compared with what is predicted for it; or why not.
pub(crate) fn comparable_device(run: &RunSummary) -> Result<&'static Device, String> {
    if let Some(ranks) = run.ranks_on_a_device {
        return Err(format!("{ranks} ranks share a GPU, so its times are not those of {ranks} GPUs"));
    }
    let device = run.device.as_ref().ok_or("the run does not say its device")?;
    Device::named(&device.name).map_err(|_| format!("nothing is known of the device {}", device.name))
}

/// What was predicted for a run, beside what was measured, with these assumptions for its device. None for a run that does
/// not say its model and layout: only those of our trainer do.
pub fn plan_score(analysis: &Analysis, assume: impl Fn(&Device) -> Assumptions) -> Option<PlanScore> {
    let (model, layout) = trained(&analysis.run)?;
    let configuration = comparable_device(&analysis.run).and_then(|device| {
        let assumptions = assume(device);
        let predicted = Configuration::predict(model, device, &assumptions, layout);
        predicted.map(|predicted| (predicted, assumptions)).map_err(|error| error.to_string())
    });
    let step = analysis.step_time.as_ref().filter(|_| !analysis.window.whole);
    let compared = configuration.and_then(|configuration| {
        let step = step.ok_or_else(|| "no complete step was recorded".to_owned())?;
        Ok((configuration, step))
    });
    let mfu = analysis.mfu.as_ref().filter(|mfu| mfu.convention == Convention::Model).and_then(|mfu| mfu.value);
    let fullest = RankMemory::fullest(analysis.memory.iter().filter(|memory| !memory.inferred));
    let times = compared.as_ref().ok();
    let figure = |predicted: fn(&Configuration) -> f64, measured: Option<f64>| {
        Some(ScoredFigure::of(predicted(&times?.0.0), measured?))
    };
    Some(PlanScore {
        step_time_ns: figure(|predicted| predicted.step_time_ns, times.map(|(_, step)| step.median_ns as f64)),
        step_time_low_ns: times.map(|((predicted, _), _)| predicted.step_time_low_ns),
        step_time_high_ns: times.map(|((predicted, _), _)| predicted.step_time_high_ns),
        tokens_per_second: figure(
            |predicted| predicted.tokens_per_second,
            times.and_then(|(_, step)| step.tokens_per_second),
        ),
        mfu: figure(|predicted| predicted.mfu, mfu),
        assumptions: times.map(|((_, assumptions), _)| *assumptions),
        times_why_not: compared.err(),
        memory_bytes: fullest
            .and_then(|memory| Some(ScoredFigure::of(memory.predicted?.total() as f64, memory.peak_bytes as f64))),
        memory: fullest.map_or_else(Default::default, by_category),
    })
}

/// What the fullest rank held at its peak. Nothing is predicted for what has no category.
fn by_category(memory: &RankMemory) -> BTreeMap<MemoryCategory, ScoredFigure> {
    let planned = memory.predicted.iter().flat_map(|plan| plan.categories());
    let of_category = planned.filter_map(|(name, predicted)| {
        let category = MemoryCategory::ALL.iter().copied().find(|category| category.word() == name)?;
        let measured = memory.at_peak.get(&category).copied().unwrap_or(0);
        (predicted + measured > 0).then(|| (category, ScoredFigure::of(predicted as f64, measured as f64)))
    });
    of_category.collect()
}
