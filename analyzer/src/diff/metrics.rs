//! Figures of both runs side by side, each with how sure its change is.
//!
//! For users, it is defined in `docs/src/metrics.md#comparisons`.
//!
//! Figures of steps are sums over the steps that count, or ratios of such sums, with an interval from their spread. A
//! change is significant when the interval excludes zero and the change is beyond a floor: a factor of a hundredth, up or
//! down (so that time and speed are judged alike), and half a point where it is a share of time. Memory does not spread:
//! there the floor alone decides.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{SpanKind, Step};

use super::{
    memory::{MemoryDiff, fullest},
    profile::{Profile, ProfileStep},
    resample::{Interval, Series},
    steady::Steady,
};
use crate::figures::{CollectiveFigures, Mfu, StepBubble};

/// A change by a factor closer to one than this is none.
const FLOOR: f64 = 0.01;
/// Of memory.
const MEMORY_FLOOR: f64 = 0.001;
/// A change of a share by less than this is none.
const POINTS: f64 = 0.005;

/// The figures that there may be; besides, `bus_bandwidth.` and an operation.
pub const DIFF_METRICS: [&str; 13] = [
    "step_time",
    "time_per_token",
    "tokens_per_step",
    "tokens_per_second",
    "tokens_per_second_per_rank",
    "mfu",
    "hfu",
    "overlap",
    "bubble",
    "energy_per_token",
    "peak_memory",
    "peak_memory_of_all_ranks",
    "reserved_memory",
];
/// What the names of bandwidths begin with.
pub const BUS_BANDWIDTH: &str = "bus_bandwidth.";

/// A figure in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricDiff {
    /// Its name.
    pub metric: String,
    /// What it is in.
    pub unit: Unit,
    /// Whether more of it is better; none where that depends.
    pub more_is_better: Option<bool>,
    /// In the base.
    pub base: Option<f64>,
    /// In the other.
    pub other: Option<f64>,
    /// How much more that is.
    pub change: Option<f64>,
    /// The same, as a share of the base's.
    pub relative: Option<f64>,
    /// What the change is hardly below; none where nothing is known of the spread.
    pub low: Option<f64>,
    /// What it is hardly above.
    pub high: Option<f64>,
    /// Whether the interval excludes zero, and the change is large enough to matter.
    pub significant: bool,
}

/// What a figure is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A share of one.
    Share,
    /// Tokens.
    Tokens,
    /// Tokens a second.
    TokensPerSecond,
    /// Bytes a second.
    BytesPerSecond,
    /// Joules.
    Joules,
}

impl MetricDiff {
    /// What the change lies between.
    pub fn interval(&self) -> Option<Interval> {
        Some(Interval { low: self.low?, high: self.high? })
    }

    /// Whether the change is large enough to matter. From nothing to something is a change, however small.
    fn matters(&self, floor: f64) -> bool {
        let is_share_of_time = matches!(self.metric.as_str(), "overlap" | "bubble");
        self.change.is_some_and(|change| change != 0.0 && (!is_share_of_time || change.abs() >= POINTS))
            && self.relative.is_none_or(|relative| relative.ln_1p().abs() >= floor)
    }
}

/// How a figure is told from the steps of a side.
type OfSteps<'a> = &'a dyn Fn(&Profile<'_>, &[ProfileStep]) -> Option<Series>;

/// Every figure that a side has.
pub(crate) fn compare(
    base: &Profile<'_>,
    other: &Profile<'_>,
    steady: &Steady<'_>,
    memory: Option<&MemoryDiff>,
) -> Vec<MetricDiff> {
    let mut metrics = Vec::new();
    let mut add = |name: &str, unit: Unit, more_is_better: Option<bool>, of: OfSteps<'_>| {
        let series = [of(base, steady.base), of(other, steady.other)];
        let values = series.each_ref().map(|series| series.as_ref().and_then(Series::value));
        let interval = match &series {
            [Some(base), Some(other)] => steady.change(base, other),
            _ => None,
        };
        metrics.extend(metric(name, unit, more_is_better, values, interval, FLOOR));
    };
    add("step_time", Unit::Nanoseconds, Some(false), &|_, steps| {
        let time = |step: &ProfileStep| step.time_ns as f64 / step.ranks.len().max(1) as f64;
        let there = steps.iter().any(|step| step.time_ns > 0);
        there.then(|| Series::mean(steps.iter().map(time).collect()))
    });
    add("time_per_token", Unit::Nanoseconds, Some(false), &|_, steps| {
        ratio(steps, |step| Some((step.longest_ns as f64, step.tokens?)))
    });
    add("tokens_per_step", Unit::Tokens, None, &|_, steps| tokens_per_step(steps));
    add("tokens_per_second", Unit::TokensPerSecond, Some(true), &|_, steps| tokens_per_second(steps, 1.0));
    add("tokens_per_second_per_rank", Unit::TokensPerSecond, Some(true), &|profile, steps| {
        tokens_per_second(steps, 1.0 / f64::from(profile.analysis.run.world_size.max(1)))
    });
    add("mfu", Unit::Share, Some(true), &|profile, steps| utilisation(profile, steps, |mfu| mfu.value));
    add("hfu", Unit::Share, Some(true), &|profile, steps| utilisation(profile, steps, |mfu| mfu.hfu));
    add("overlap", Unit::Share, Some(true), &|_, steps| {
        ratio(steps, |step| Some((step.hidden_ns as f64, step.communication_ns as f64)))
    });
    add("bubble", Unit::Share, Some(false), &bubble);
    add("energy_per_token", Unit::Joules, Some(false), &|_, steps| energy_per_token(steps));
    for (name, kind) in bandwidths(base, other) {
        add(&name, Unit::BytesPerSecond, Some(true), &|profile, steps| bandwidth(profile, steps, &kind));
    }
    judge_by_time(&mut metrics);
    // Where the peak of one device is measured in each run, a share of it changes with that, too.
    let peak = |profile: &Profile<'_>| profile.analysis.mfu.as_ref().map(|mfu| mfu.peak_flops);
    let device = |profile: &Profile<'_>| profile.analysis.run.device.as_ref().map(|device| device.name.clone());
    if device(base) == device(other) && peak(base) != peak(other) {
        let of_peak = metrics.iter_mut().filter(|metric| ["mfu", "hfu"].contains(&metric.metric.as_str()));
        of_peak.for_each(|metric| metric.significant = false);
    }
    let mut sizes = |name: &str, values: [Option<f64>; 2]| {
        let change = values[0].zip(values[1]).map(|(base, other)| other - base);
        let exact = change.map(|change| Interval { low: change, high: change });
        metrics.extend(metric(name, Unit::Bytes, Some(false), values, exact, MEMORY_FLOOR));
    };
    let peak = |profile: &Profile<'_>| fullest(&profile.analysis).map(|memory| memory.peak_bytes as f64);
    sizes("peak_memory", [peak(base), peak(other)]);
    // Of ranks that are not there, nobody knows what they needed.
    let has_all = |profile: &Profile<'_>| profile.analysis.memory.len() as u32 == profile.analysis.run.world_size;
    let memory = memory.filter(|_| has_all(base) && has_all(other));
    let all = |of: fn(&MemoryDiff) -> i64| memory.map(|memory| of(memory) as f64);
    sizes(
        "peak_memory_of_all_ranks",
        [all(|memory| memory.all_ranks.base_bytes), all(|memory| memory.all_ranks.other_bytes)],
    );
    let reserved = |profile: &Profile<'_>| {
        profile.analysis.memory.iter().filter_map(|memory| memory.reserved_peak_bytes).max().map(|bytes| bytes as f64)
    };
    sizes("reserved_memory", [reserved(base), reserved(other)]);
    metrics
}

/// Gives figures that are so much for each time that a token takes the interval that this has: a change of one is a change
/// of the other, and chance in one is chance in the other.
fn judge_by_time(metrics: &mut [MetricDiff]) {
    let Some(time) = metrics.iter().find(|metric| metric.metric == "time_per_token").cloned() else { return };
    let (Some(base), Some(other), Some(interval)) = (time.base, time.other, time.interval()) else { return };
    for metric in metrics {
        if !matches!(metric.metric.as_str(), "tokens_per_second" | "tokens_per_second_per_rank" | "mfu" | "hfu") {
            continue;
        }
        let (Some(from), Some(to)) = (metric.base, metric.other) else { continue };
        let at = |change: f64| (base + change > 0.0).then(|| to * other / (base + change) - from);
        (metric.low, metric.high) = (at(interval.high), at(interval.low));
        metric.significant =
            metric.matters(FLOOR) && metric.interval().is_some_and(|interval| interval.excludes_zero());
    }
}

/// A figure of both sides; nothing where neither has it.
fn metric(
    name: &str,
    unit: Unit,
    more_is_better: Option<bool>,
    [base, other]: [Option<f64>; 2],
    interval: Option<Interval>,
    floor: f64,
) -> Option<MetricDiff> {
    if base.is_none() && other.is_none() {
        return None;
    }
    let change = base.zip(other).map(|(base, other)| other - base);
    let relative = base.filter(|base| *base != 0.0).zip(change).map(|(base, change)| change / base);
    let mut found = MetricDiff {
        metric: name.into(),
        unit,
        more_is_better,
        base,
        other,
        change,
        relative,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        significant: false,
    };
    found.significant = found.matters(floor) && interval.is_some_and(|interval| interval.excludes_zero());
    Some(found)
}

/// A ratio of sums; nothing where a step does not say.
fn ratio(steps: &[ProfileStep], of: impl Fn(&ProfileStep) -> Option<(f64, f64)>) -> Option<Series> {
    let (above, below) = steps.iter().map(of).collect::<Option<Vec<_>>>()?.into_iter().unzip();
    Some(Series { above, below })
}

/// Devices are asked now and then: at the end of a recording nobody may have asked any more. Steps of which nothing is known
/// count for nothing, where most are known.
fn energy_per_token(steps: &[ProfileStep]) -> Option<Series> {
    let drawn = |step: &ProfileStep| step.energy.zip(step.tokens);
    let known = steps.iter().filter_map(drawn).count();
    if 2 * known > steps.len() { ratio(steps, |step| Some(drawn(step).unwrap_or((0.0, 0.0)))) } else { None }
}

fn tokens_per_step(steps: &[ProfileStep]) -> Option<Series> {
    ratio(steps, |step| Some((step.tokens?, 1.0)))
}

fn tokens_per_second(steps: &[ProfileStep], share: f64) -> Option<Series> {
    ratio(steps, |step| Some((share * step.tokens?, step.longest_ns as f64 / 1e9)))
}

/// What each token a second is worth is the same in every step.
fn utilisation(profile: &Profile<'_>, steps: &[ProfileStep], of: impl Fn(&Mfu) -> Option<f64>) -> Option<Series> {
    let mfu = profile.analysis.mfu.as_ref()?;
    let rate = mfu.tokens_per_second.filter(|rate| *rate > 0.0)?;
    tokens_per_second(steps, of(mfu)? / rate)
}

fn bubble(profile: &Profile<'_>, steps: &[ProfileStep]) -> Option<Series> {
    let pipeline = profile.analysis.pipeline.as_ref()?;
    ratio(steps, |step| {
        let of_step = |bubble: &&StepBubble| step.step.is_none_or(|step| bubble.step == step);
        let found = pipeline.per_step.iter().filter(of_step);
        let sum = found.fold((0, 0), |sum, step| (sum.0 + step.idle_ns, sum.1 + step.window_ns));
        Some((sum.0 as f64, sum.1 as f64)).filter(|(_, window)| *window > 0.0)
    })
}

/// What collectives of both runs have in common.
#[derive(Clone, Copy, PartialEq)]
struct BandwidthKind {
    operation: SpanKind,
    axis: Option<Axis>,
}

impl BandwidthKind {
    fn of(collective: &CollectiveFigures) -> BandwidthKind {
        BandwidthKind { operation: collective.operation, axis: collective.axis }
    }
}

/// The kinds of collectives, each with the name of its bandwidth.
fn bandwidths(base: &Profile<'_>, other: &Profile<'_>) -> Vec<(String, BandwidthKind)> {
    let mut kinds: Vec<(String, BandwidthKind)> = Vec::new();
    for collective in base.analysis.collectives.iter().chain(&other.analysis.collectives) {
        let kind = BandwidthKind::of(collective);
        let axis = kind.axis.map_or_else(String::new, |axis| format!(".{}", axis.short_name()));
        if collective.bus_bandwidth.is_some() && kinds.iter().all(|(_, other)| *other != kind) {
            kinds.push((format!("{BUS_BANDWIDTH}{}{axis}", kind.operation.word()), kind));
        }
    }
    kinds
}

fn bandwidth(profile: &Profile<'_>, steps: &[ProfileStep], kind: &BandwidthKind) -> Option<Series> {
    let alike: Vec<&CollectiveFigures> =
        profile.analysis.collectives.iter().filter(|collective| BandwidthKind::of(collective) == *kind).collect();
    let of_step = |step: &ProfileStep| {
        let of = |collective: &&CollectiveFigures| {
            let of_step = |of: &Option<Step>| step.step.is_none() || *of == step.step;
            let found = collective.by_step.iter().filter(|(step, _)| of_step(step));
            let (bytes, own) =
                found.fold((0.0, 0.0), |sum, (_, (bytes, own))| (sum.0 + *bytes as f64, sum.1 + *own as f64));
            let factor = collective.bus_bandwidth? / collective.algorithm_bandwidth.filter(|rate| *rate > 0.0)?;
            Some((factor * bytes, own / 1e9))
        };
        let all = alike.iter().filter_map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Some(all).filter(|(_, seconds)| *seconds > 0.0)
    };
    ratio(steps, of_step)
}
