//! Caveats of a comparison.

use std::collections::BTreeMap;

use stepscope_plan::text;
use stepscope_traces::{Rank, State};

use super::{
    profile::{Profile, ProfileStep},
    steady::Steady,
};

/// A rank is the slow one if others waited at least this share of a step for it, and this much more than in the base.
const LEAST_WAIT: f64 = 0.01;
/// Peaks that differ by less than this share are the same.
const SAME_PEAK: f64 = 0.001;

pub(crate) fn notes(base: &Profile<'_>, other: &Profile<'_>, steady: &Steady<'_>) -> Vec<String> {
    let both = [(&base.name, base), (&other.name, other)];
    let mut notes: Vec<String> = Vec::new();
    notes.extend(both.iter().filter_map(|(which, profile)| Some(format!("{which} hangs: {}", why_it_hangs(profile)?))));
    notes.extend(
        both.iter()
            .filter(|(_, profile)| !has_time(profile))
            .map(|(which, _)| format!("{which} has no activity, so time is not compared")),
    );
    notes.extend(
        both.iter()
            .filter(|(_, profile)| profile.analysis.memory.is_empty())
            .map(|(which, _)| format!("{which} has no memory events, so memory is not compared")),
    );
    if both.iter().all(|(_, profile)| has_time(profile)) {
        notes.push(steps_compared(base, other, steady));
    }
    let [tokens_of_base, tokens_of_other] = [steady.base, steady.other].map(tokens_per_step);
    if let Some((base, other)) = tokens_of_base.zip(tokens_of_other).filter(|(base, other)| base != other) {
        notes.push(format!(
            "tokens per {} differ: {} in {}, {} in {}; compare time per token",
            if steady.is_whole() { "recording" } else { "step" },
            text::count(base.round() as u64),
            both[0].0,
            text::count(other.round() as u64),
            both[1].0
        ));
    }
    let ranks = both.map(|(_, profile)| profile.analysis.run.world_size);
    if ranks[0] != ranks[1] {
        let count = |ranks: u32| if ranks == 1 { "one rank".to_owned() } else { format!("{ranks} ranks") };
        let [base, other] = ranks.map(count);
        notes.push(format!("{base} vs. {other}: step time and memory are per rank"));
    }
    notes.extend(slow_rank(base, other));
    let of_each = |says: &dyn Fn(&Profile<'_>) -> Option<String>| {
        let said = both.map(|(_, profile)| says(profile));
        match said {
            [Some(base), Some(other)] if base == other => vec![format!("both runs: {base}")],
            said => both.iter().zip(said).filter_map(|((name, _), says)| Some(format!("{name}: {}", says?))).collect(),
        }
    };
    notes.extend(of_each(&|profile| {
        let ranks = profile.analysis.run.ranks_on_a_device?;
        Some(format!("{ranks} ranks share one GPU, so times do not reflect {ranks} GPUs"))
    }));
    notes.extend(of_each(&|profile| missing_ranks(profile)));
    notes.extend(of_each(&|profile| match profile.analysis.run.state {
        State::Complete => None,
        State::Recording => Some("still recording; figures cover what there is so far".to_owned()),
        State::Interrupted if missing_ranks(profile).is_some() => None,
        State::Interrupted => Some("interrupted; figures cover what was recorded until then".to_owned()),
    }));
    notes.extend(other_peak(base, other));
    notes.extend(of_each(&|profile| {
        let lost = profile.analysis.data_loss;
        let is_lost = lost.dropped_events + lost.unreadable_bytes + lost.unreadable_events > 0;
        is_lost.then(|| "some data was lost; figures cover what remains".to_owned())
    }));
    notes.extend(of_each(&|profile| {
        let inferred = profile.analysis.step_time.as_ref().is_some_and(|time| time.inferred);
        inferred.then(|| "steps are inferred from repeating kernels".to_owned())
    }));
    if both.iter().any(|(_, profile)| profile.analysis.run.model.is_none()) {
        notes.push("it is unknown whether both runs use the same model and precision".into());
    }
    notes
}

/// Ranks that share a device have a part of its peak, and a CPU's is measured anew in each run.
fn other_peak(base: &Profile<'_>, other: &Profile<'_>) -> Option<String> {
    let [of_base, of_other] = [base, other].map(|profile| profile.analysis.mfu.as_ref().map(|mfu| mfu.peak_flops));
    let (of_base, of_other) = of_base.zip(of_other).filter(|(base, other)| (base - other).abs() > SAME_PEAK * base)?;
    Some(format!(
        "the peak per rank is {} in {} and {} in {}; each MFU uses its own run's peak (--peak-tflops sets one for both)",
        text::flops(of_base),
        base.name,
        text::flops(of_other),
        other.name,
    ))
}

/// Says so if ranks of the job are missing.
pub(super) fn missing_ranks(profile: &Profile<'_>) -> Option<String> {
    let (there, all) = (profile.analysis.ranks.len(), profile.analysis.run.world_size as usize);
    (there < all).then(|| format!("only {there} of {all} ranks are present; figures cover those"))
}

fn why_it_hangs<'a>(profile: &'a Profile<'_>) -> Option<&'a str> {
    let findings = &profile.analysis.findings;
    findings.iter().find(|finding| finding.kind == "hang").map(|finding| finding.summary.as_str())
}

fn has_time(profile: &Profile<'_>) -> bool {
    profile.steps.iter().any(|step| step.time_ns > 0)
}

fn steps_compared(base: &Profile<'_>, other: &Profile<'_>, steady: &Steady<'_>) -> String {
    if steady.is_whole() {
        let count = |profile: &Profile<'_>| profile.analysis.step_time.as_ref().map_or(0, |time| time.count);
        let steps = match (count(base), count(other)) {
            (0, 0) => "no steps were recorded; ".to_owned(),
            (one, two) if one == two => String::new(),
            (one, two) => format!(
                "{} has {} and {} has {}; ",
                base.name,
                text::counted(one, "step"),
                other.name,
                text::counted(two, "step")
            ),
        };
        return format!("{steps}whole recordings are compared, without a confidence interval");
    }
    let counts = [base, other].map(|profile| profile.steps.len());
    let [steps, others] = counts.map(|count| text::counted(count as u64, "step"));
    let counted = format!("{steps} of {} vs. {others} of {}", base.name, other.name);
    let of_one = |count: usize, name: &str| match count {
        1 => format!("the first step of {name} is excluded as warm-up"),
        _ => format!("the first {count} steps of {name} are excluded as warm-up"),
    };
    let left_out = match [base, other].map(|profile| profile.analysis.window.warm_up.len()) {
        [0, 0] => "no step is excluded as warm-up".to_owned(),
        [1, 1] => "the first step of each is excluded as warm-up".to_owned(),
        [base, other] if base == other => format!("the first {base} steps of each are excluded as warm-up"),
        [0, others] => of_one(others, &other.name),
        [steps, 0] => of_one(steps, &base.name),
        [base, other] => format!("the first {base} and the first {other} steps are excluded as warm-up"),
    };
    let spread = match counts {
        [1, 1] => "; one step each, so no confidence interval",
        [1, _] | [_, 1] => "; a single step has no confidence interval",
        _ => "",
    };
    format!("{counted}; {left_out}{spread}")
}

/// Tokens of a step, where all steps have as many.
fn tokens_per_step(steps: &[ProfileStep]) -> Option<f64> {
    let first = steps.first()?.tokens?;
    steps.iter().all(|step| step.tokens == Some(first)).then_some(first)
}

/// A rank for which the others wait, more than in the base.
fn slow_rank(base: &Profile<'_>, other: &Profile<'_>) -> Option<String> {
    let (before, after) = (waits(base), waits(other));
    let (rank, wait) = after.iter().max_by(|one, other| one.1.total_cmp(other.1))?;
    let step = other.analysis.step_time.as_ref()?.median_ns as f64;
    // Another number of ranks, and nobody is who they were.
    let wait_before = if before.len() == after.len() { before.get(rank).copied().unwrap_or(0.0) } else { 0.0 };
    (wait - wait_before >= LEAST_WAIT * step).then(|| {
        format!(
            "in {}, the other ranks wait {} per step for rank {rank}; in {}, {}",
            other.name,
            text::duration(*wait as i64),
            base.name,
            text::duration(wait_before as i64)
        )
    })
}

/// How long the others wait for each rank in a step, more than it waits itself: the mean of the others.
fn waits(profile: &Profile<'_>) -> BTreeMap<Rank, f64> {
    let stragglers = &profile.analysis.stragglers;
    let others = stragglers.len().saturating_sub(1).max(1) as f64;
    let steps = profile.analysis.step_time.as_ref().map_or(1, |time| time.count).max(1) as f64;
    let net = |caused: i64, waited: i64| (caused as f64 / others - waited as f64).max(0.0) / steps;
    stragglers.iter().map(|rank| (rank.rank, net(rank.caused_wait_ns, rank.wait_ns))).collect()
}
