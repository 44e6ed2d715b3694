//! Whether two runs can be compared, and in what they differ.

use serde::Serialize;
use stepscope_plan::Model;
use stepscope_traces::RunSource;

use super::profile::Profile;
use crate::figures::{RunLayout, RunSummary};

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDiff {
    /// What it is called.
    pub setting: String,
    /// What it is in the base; none, where that is not known.
    pub base: Option<String>,
    /// In the other.
    pub other: Option<String>,
}

/// Settings that say how a run is spread and trained, as people say them.
pub(crate) fn settings(profile: &Profile<'_>) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut add = |name: &str, value: String| settings.push((name.to_owned(), value));
    add("ranks", profile.analysis.run.world_size.to_string());
    if let Some(layout) = profile.analysis.run.layout {
        let RunLayout { dp, tp, pp, cp, ep, zero, schedule, chunks, micro_batch, micro_batches, .. } = layout;
        add("dp", dp.to_string());
        add("tp", tp.to_string());
        add("pp", pp.to_string());
        add("cp", cp.to_string());
        add("ep", ep.to_string());
        if let Some(said) = layout.said {
            add("dp-replicate", said.dp_replicate.to_string());
            add("cp-exchange", if cp > 1 { said.context.name().into() } else { "none".into() });
        }
        let number = |number: u64| number.to_string();
        let settings = [
            ("sequence-parallel", layout.sequence_parallel.map(|shared| shared.to_string())),
            ("zero", zero.map(|zero| u8::from(zero).to_string())),
            ("dp-replicate", layout.dp_replicate.filter(|groups| *groups > 1).map(number)),
            ("prefetch", layout.prefetch.map(number)),
            ("unit-layers", layout.unit_layers.map(number)),
            ("schedule", schedule.filter(|_| pp > 1).map(|schedule| schedule.name().into())),
            ("chunks", chunks.filter(|_| pp > 1).map(number)),
            ("micro-batch", micro_batch.map(number)),
            ("micro-batches", micro_batches.map(number)),
            ("recompute", layout.recompute.map(|recompute| recompute.name().into())),
            ("gradients", layout.gradients.map(|gradients| gradients.name().into())),
        ];
        for (name, value) in settings {
            value.into_iter().for_each(|value| add(name, value));
        }
    }
    if let Some(pipeline) = profile.analysis.pipeline.as_ref().filter(|_| profile.analysis.run.layout.is_none()) {
        add("pipeline stages (inferred)", pipeline.stages.to_string());
    }
    let has_experts = profile.analysis.run.model.as_ref().is_some_and(has_experts);
    for (name, value) in &profile.run.info.configuration {
        // How long it went on changes nothing of a step, nor does a loss of experts that a model does not have.
        if name != "steps" && (name != "balance_loss" || has_experts) {
            add(&name.replace('_', "-"), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    settings
}

fn has_experts(model: &Model) -> bool {
    model.shape().is_some_and(|shape| shape.experts.is_some())
}

/// What differs between two runs that can be compared.
pub(crate) fn differences(base: &Profile<'_>, other: &Profile<'_>) -> Vec<SettingDiff> {
    let (base, other) = (settings(base), settings(other));
    let value = |settings: &[(String, String)], name: &str| {
        settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    };
    let mut names: Vec<&String> = base.iter().map(|(name, _)| name).collect();
    names.extend(other.iter().map(|(name, _)| name).filter(|name| value(&base, name).is_none()));
    let differs = |name: &String| {
        let (base, other) = (value(&base, name), value(&other, name));
        (base != other).then(|| SettingDiff { setting: name.clone(), base, other })
    };
    names.into_iter().filter_map(differs).collect()
}

/// Why two runs cannot be compared: each a reason in itself. What is not known is no reason.
pub(crate) fn why_not(base: &Profile<'_>, other: &Profile<'_>) -> Vec<String> {
    let differ = |what: &str, base: Option<String>, other: Option<String>| {
        let (base, other) = (base?, other?);
        (base != other).then(|| format!("{what} differs: {base} and {other}"))
    };
    let (one, two) = (&base.analysis.run, &other.analysis.run);
    let layout =
        |of: fn(&RunLayout) -> Option<String>| (one.layout.as_ref().and_then(of), two.layout.as_ref().and_then(of));
    let (base_model, other_model) = (one.model.as_ref(), two.model.as_ref());
    let model = differ(
        "model",
        base_model.map(|model| model.name().to_owned()),
        other_model.map(|model| model.name().to_owned()),
    );
    let shape = base_model.zip(other_model).filter(|(base, other)| base != other);
    let shape = shape.map(|(base, _)| format!("model differs: {} has different shapes in the two runs", base.name()));
    let (base_length, other_length) = layout(|layout| layout.sequence_length.map(|length| length.to_string()));
    let (base_precision, other_precision) = layout(|layout| layout.precision.map(|precision| precision.name().into()));
    let device = |run: &RunSummary| run.device.as_ref().map(|device| device.name.clone());
    let has_steps = |profile: &Profile<'_>| profile.steps.iter().any(|step| step.step.is_some());
    let has_time = |profile: &Profile<'_>| profile.steps.iter().any(|step| step.time_ns > 0);
    let both_have_time = has_time(base) && has_time(other);
    let steps = (both_have_time && has_steps(base) != has_steps(other))
        .then(|| "only one of them has steps; the other is compared as a whole".to_owned());
    let source = |source: RunSource| source.other_tool().unwrap_or("Stepscope").to_owned();
    let is_cut = |profile: &Profile<'_>| !profile.analysis.run.ended_early.is_empty();
    let cut = (is_cut(base) || is_cut(other)).then(|| "a file is truncated, and anything may be missing".to_owned());
    let reasons = [
        cut,
        model.or(shape),
        differ("sequence length", base_length, other_length),
        differ("precision", base_precision, other_precision),
        differ("device", device(one), device(two)),
        differ("source", Some(source(one.source)), Some(source(two.source))),
        steps,
    ];
    reasons.into_iter().flatten().collect()
}
