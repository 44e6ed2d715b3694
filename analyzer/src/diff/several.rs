//! Several runs beside each other: settings and figures, which is best, and how it scales with ranks.

use serde::Serialize;
use stepscope_traces::State;

use super::{
    Diff, SCHEMA,
    comparable::settings,
    memory::fullest,
    metrics::{MetricDiff, Unit},
    notes::missing_ranks,
    profile::Profile,
};

/// Several runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Several {
    /// The version of this form.
    pub schema: u32,
    /// What the runs are called; the first is the base.
    pub runs: Vec<String>,
    /// Why runs cannot be compared with the base, in the order of the runs.
    pub why_not: Vec<Vec<String>>,
    /// What else is to be known of the figures.
    pub notes: Vec<String>,
    /// Settings that are not the same in all runs.
    pub settings: Vec<SettingRow>,
    /// Figures.
    pub metrics: Vec<MetricRow>,
    /// Throughput and memory against ranks, by ranks; empty where all runs have as many.
    pub scaling: Vec<ScalingPoint>,
    /// Each run but the first, compared with it.
    pub diffs: Vec<Diff>,
}

/// A setting of several runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    /// What it is called.
    pub setting: String,
    /// What it is in each run; none, where that is not known.
    pub values: Vec<Option<String>>,
}

/// A figure of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricRow {
    /// Its name.
    pub metric: String,
    /// What it is in.
    pub unit: Unit,
    /// In each run.
    pub values: Vec<Option<f64>>,
    /// Whether it differs from the base's by more than chance, in each run.
    pub significant: Vec<bool>,
    /// Which runs are best, of those that can be compared: more than one, where they have the same.
    pub best: Vec<bool>,
}

/// A run among others with other numbers of ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingPoint {
    /// Which run.
    pub run: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// Of the whole job.
    pub tokens_per_second: Option<f64>,
    /// Tokens a second of a rank, as a share of those of a rank of the run that has fewest; of several such runs, the
    /// fastest.
    pub efficiency: Option<f64>,
    /// Of the fullest rank.
    pub peak_bytes: Option<u64>,
}

/// Puts runs beside each other. The diffs are those of each run but the first with it.
pub fn several(profiles: &[Profile<'_>], diffs: Vec<Diff>) -> Several {
    let mut metrics: Vec<MetricRow> = Vec::new();
    for diff in &diffs {
        // What a run alone has stands where it stands there.
        let mut next = 0;
        for metric in &diff.metrics {
            match metrics.iter().position(|row| row.metric == metric.metric) {
                Some(known) => next = known + 1,
                None => {
                    metrics.insert(next, row(metric, &diffs));
                    next += 1;
                }
            }
        }
    }
    let reasons = diffs.iter().map(|diff| diff.why_not.clone());
    Several {
        schema: SCHEMA,
        runs: profiles.iter().map(|profile| profile.name.clone()).collect(),
        why_not: std::iter::once(Vec::new()).chain(reasons).collect(),
        settings: differing(profiles),
        scaling: scaling(profiles, &diffs, &metrics),
        notes: notes(profiles),
        metrics,
        diffs,
    }
}

fn row(metric: &MetricDiff, diffs: &[Diff]) -> MetricRow {
    let of = |diff: &Diff| diff.metrics.iter().find(|other| other.metric == metric.metric).cloned();
    let found: Vec<Option<MetricDiff>> = diffs.iter().map(of).collect();
    let base = found.iter().flatten().find_map(|metric| metric.base);
    let others = found.iter().map(|metric| metric.as_ref().and_then(|metric| metric.other));
    let values: Vec<Option<f64>> = std::iter::once(base).chain(others).collect();
    let significant = found.iter().map(|metric| metric.as_ref().is_some_and(|metric| metric.significant));
    let comparable: Vec<bool> = std::iter::once(true).chain(diffs.iter().map(|diff| diff.comparable)).collect();
    let compared =
        || values.iter().zip(&comparable).filter(|(_, comparable)| **comparable).filter_map(|(value, _)| *value);
    // Steps of more tokens may take longer, and be the faster ones.
    let is_judged = metric.metric != "step_time" || diffs.iter().all(|diff| !has_other_batch(diff));
    let best = metric
        .more_is_better
        .filter(|_| is_judged)
        .and_then(|more| if more { compared().reduce(f64::max) } else { compared().reduce(f64::min) });
    let differ = compared().any(|value| Some(value) != best);
    let is_best =
        |(value, comparable): (&Option<f64>, &bool)| differ && *comparable && value.is_some() && *value == best;
    MetricRow {
        metric: metric.metric.clone(),
        unit: metric.unit,
        best: values.iter().zip(&comparable).map(is_best).collect(),
        significant: std::iter::once(false).chain(significant).collect(),
        values,
    }
}

/// Whether steps have other tokens.
fn has_other_batch(diff: &Diff) -> bool {
    let tokens = diff.metrics.iter().find(|metric| metric.metric == "tokens_per_step");
    tokens.and_then(|tokens| tokens.change).is_some_and(|change| change != 0.0)
}

fn differing(profiles: &[Profile<'_>]) -> Vec<SettingRow> {
    let all: Vec<Vec<(String, String)>> = profiles.iter().map(settings).collect();
    let mut rows: Vec<SettingRow> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if rows.iter().any(|row| row.setting == *name) {
            continue;
        }
        let value = |settings: &Vec<(String, String)>| {
            settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        rows.push(SettingRow { setting: name.clone(), values: all.iter().map(value).collect() });
    }
    rows.retain(|row| row.values.iter().any(|value| *value != row.values[0]));
    rows
}

/// Caveats that hold for some of the runs.
fn notes(profiles: &[Profile<'_>]) -> Vec<String> {
    let which = |is_so: &dyn Fn(&Profile<'_>) -> bool| {
        let found: Vec<&str> =
            profiles.iter().filter(|profile| is_so(profile)).map(|profile| profile.name.as_str()).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let sharing = which(&|profile| profile.analysis.run.ranks_on_a_device.is_some());
    let missing = which(&|profile| missing_ranks(profile).is_some());
    let cut_off = which(&|profile| profile.analysis.run.state != State::Complete && missing_ranks(profile).is_none());
    let lossy = which(&|profile| {
        let lost = profile.analysis.data_loss;
        lost.dropped_events + lost.unreadable_bytes + lost.unreadable_events > 0
    });
    let sharing = sharing.map(|runs| format!("{runs}: ranks share a GPU, so times do not reflect as many GPUs"));
    let cut_off = cut_off.map(|runs| format!("{runs}: interrupted or still recording; figures cover what there is"));
    let missing = missing.map(|runs| format!("{runs}: ranks are missing; figures cover those that are present"));
    let lossy = lossy.map(|runs| format!("{runs}: some data was lost; figures cover what remains"));
    [sharing, missing, cut_off, lossy].into_iter().flatten().collect()
}

/// Only of runs that can be compared.
fn scaling(all: &[Profile<'_>], diffs: &[Diff], metrics: &[MetricRow]) -> Vec<ScalingPoint> {
    let is_comparable = |run: usize| run.checked_sub(1).is_none_or(|other| diffs[other].comparable);
    let profiles: Vec<(usize, &Profile<'_>)> = all.iter().enumerate().filter(|(run, _)| is_comparable(*run)).collect();
    let ranks = |profile: &Profile<'_>| profile.analysis.run.world_size;
    let Some(fewest) = profiles.iter().map(|(_, profile)| ranks(profile)).min() else { return Vec::new() };
    if profiles.iter().all(|(_, profile)| ranks(profile) == fewest) {
        return Vec::new();
    }
    let rates = metrics.iter().find(|row| row.metric == "tokens_per_second");
    let rate = |run: usize| rates.and_then(|row| row.values[run]);
    let of_a_rank = |run: usize| rate(run).map(|rate| rate / f64::from(ranks(&all[run]).max(1)));
    let first = profiles.iter().filter(|(_, profile)| ranks(profile) == fewest).map(|(run, _)| *run);
    let first = first.filter_map(of_a_rank).reduce(f64::max).filter(|rate| *rate > 0.0);
    let point = |(run, profile): (usize, &Profile<'_>)| ScalingPoint {
        run: profile.name.clone(),
        ranks: ranks(profile),
        tokens_per_second: rate(run),
        efficiency: of_a_rank(run).zip(first).map(|(rate, first)| rate / first),
        peak_bytes: fullest(&profile.analysis).map(|memory| memory.peak_bytes),
    };
    let mut points: Vec<ScalingPoint> = profiles.into_iter().map(point).collect();
    points.sort_by_key(|point| point.ranks);
    points
}
