//! Steps with their figures: of the whole job, and of each rank.

use serde_json::Value;
use stepscope_analyzer::{Analysis, CountedSteps, StepChoice, StepFigures};
use stepscope_traces::{
    Rank,
    export::perfetto::{Fact, NamedStretch},
};

/// The steps of a rank that are chosen.
pub(super) fn of_rank(analysis: &Analysis, chosen: StepChoice, rank: Rank) -> Vec<NamedStretch> {
    let steps = analysis.steps.iter().filter(|step| step.rank == rank && chosen.may_have(Some(step.step)));
    apart(steps.map(|step| stretch(&analysis.window, step, step.aligned_start_ns, figures(step))))
}

/// Those of the whole job: each begins with its first rank, and has the figures of the one on which it takes longest.
pub(super) fn of_run(analysis: &Analysis, chosen: StepChoice) -> Vec<NamedStretch> {
    let steps = analysis.steps.chunk_by(|one, other| one.step == other.step).filter_map(|ranks| {
        let ranks = ranks.iter().filter(|step| chosen.may_have(Some(step.step)));
        let begins = ranks.clone().map(|step| step.aligned_start_ns).min()?;
        let longest = ranks.max_by_key(|step| step.duration_ns)?;
        Some(stretch(&analysis.window, longest, begins, figures_of_longest(longest)))
    });
    apart(steps)
}

/// From the first to the last step that counts.
pub(super) fn counted(analysis: &Analysis) -> Option<(i64, i64)> {
    let counted = || analysis.steps.iter().filter(|step| analysis.window.counts(step.step));
    let begins = counted().map(|step| step.aligned_start_ns).min()?;
    let ends = counted().map(ends).max()?;
    (begins < ends).then_some((begins, ends))
}

fn ends(step: &StepFigures) -> i64 {
    step.aligned_start_ns.saturating_add(step.duration_ns)
}

fn stretch(window: &CountedSteps, step: &StepFigures, start_ns: i64, arguments: Vec<(String, Fact)>) -> NamedStretch {
    let number = step.step;
    let aside = match (window.warm_up.contains(&number), window.cut_off.contains(&number)) {
        (true, _) => " (warm-up)",
        (_, true) => " (cut off)",
        _ if !window.counts(number) => " (not counted)",
        _ => "",
    };
    NamedStretch { start_ns, end_ns: ends(step), name: format!("step {number}{aside}"), arguments }
}

/// The figures of a step, as `analyze --format json` names them.
fn figures(step: &StepFigures) -> Vec<(String, Fact)> {
    let Ok(Value::Object(figures)) = serde_json::to_value(step) else { return Vec::new() };
    let fact = |value: &Value| value.as_u64().map(Fact::Count).or_else(|| value.as_f64().map(Fact::Number));
    figures.iter().filter_map(|(name, value)| Some((name.clone(), fact(value)?))).collect()
}

/// The figures of the rank on which a step takes longest, which stand for the job's.
fn figures_of_longest(step: &StepFigures) -> Vec<(String, Fact)> {
    let mut figures = figures(step);
    figures.retain(|(name, _)| name != "rank");
    figures.push(("of_rank".into(), Fact::Count(step.rank.0.into())));
    figures
}

/// In the order of time, each over where the next one begins.
fn apart(steps: impl Iterator<Item = NamedStretch>) -> Vec<NamedStretch> {
    let mut steps: Vec<NamedStretch> = steps.collect();
    steps.sort_by_key(|step| step.start_ns);
    let starts: Vec<i64> = steps.iter().skip(1).map(|step| step.start_ns).collect();
    steps.iter_mut().zip(starts).for_each(|(step, next)| step.end_ns = step.end_ns.min(next));
    steps
}
