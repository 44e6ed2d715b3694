//! What every form of a comparison says first: the answer in a sentence, and the facts behind it.

use stepscope_analyzer::{Diff, MemoryDiff, MetricDiff, SettingDiff, TimeCause, TimeDiff, Unit};
use stepscope_plan::text;

/// Causes that are named in the answer.
const CAUSES: usize = 4;
/// A cause that is less than this share of the largest is not named.
const LEAST_CAUSE: f64 = 0.1;

/// The warning with figures of runs that are not comparable.
pub(super) const NOT_COMPARABLE: &str = "compared anyway, but changes may have several causes";

/// A line of the summary: what it is about, and what it says.
pub(super) struct Fact {
    pub(super) about: &'static str,
    pub(super) says: String,
}

/// The answer.
pub(super) fn answer(diff: &Diff) -> String {
    if !diff.comparable {
        return format!("{} and {} are not comparable: {}", diff.other, diff.base, diff.why_not.join("; "));
    }
    match (&diff.step_time, &diff.peak_memory) {
        (Some(time), _) => answer_of_time(diff, time),
        (None, Some(memory)) => format!("{}: memory {}", diff.other, more_memory(diff, memory)),
        (None, None) => format!("{} and {} have no figures in common", diff.base, diff.other),
    }
}

/// A figure of a comparison.
pub(super) fn metric<'a>(diff: &'a Diff, name: &str) -> Option<&'a MetricDiff> {
    diff.metrics.iter().find(|metric| metric.metric == name)
}

/// What is compared: steps, or recordings.
pub(super) fn compared(diff: &Diff) -> &'static str {
    if diff.step_time.as_ref().is_some_and(|time| time.whole) { "recording" } else { "step" }
}

/// Whether a metric adds anything to the others: tokens per step, per-rank rates and sums over ranks do not if they agree in
/// all runs. `values` has those of all runs.
pub(super) fn says_something(metric: &str, values: &dyn Fn(&str) -> Option<Vec<Option<f64>>>) -> bool {
    let differ = |values: &[Option<f64>]| values.iter().any(|value| *value != values[0]);
    let ratios = |one: &str, other: &str| -> Option<Vec<Option<f64>>> {
        let (one, other) = (values(one)?, values(other)?);
        let ratio = |(one, other): (&Option<f64>, &Option<f64>)| Some((one.as_ref()? / other.as_ref()? * 1e6).round());
        Some(one.iter().zip(&other).map(ratio).collect())
    };
    match metric {
        "tokens_per_step" => values(metric).is_some_and(|values| differ(&values)),
        "tokens_per_second_per_rank" => ratios("tokens_per_second", metric).is_some_and(|ranks| differ(&ranks)),
        "peak_memory_of_all_ranks" => values(metric) != values("peak_memory"),
        _ => true,
    }
}

fn answer_of_time(diff: &Diff, time: &TimeDiff) -> String {
    let (base, other) = (&diff.base, &diff.other);
    let (what, step) = (compared(diff), metric(diff, "step_time"));
    // Steps of more tokens may take longer.
    let per_token = metric(diff, "time_per_token").filter(|_| has_other_batch(diff));
    let causes = causes(time);
    let because = if causes.is_empty() { String::new() } else { format!(": {causes}") };
    match (per_token, step) {
        (Some(per_token), Some(step)) if per_token.significant || per_token.interval().is_none() => {
            format!("{other} is {} per token than {base}; a {what} is {}{because}", judged(per_token), judged(step))
        }
        (Some(per_token), Some(step)) => {
            let relative = relative(per_token);
            let step = judged(step);
            format!("{other} and {base} do not differ significantly per token: {relative}; a {what} is {step}{because}")
        }
        // Who recorded for longer need not be slower.
        (_, Some(step)) if time.whole => {
            let length = match step.relative.unwrap_or(0.0) {
                0.0 => "as long as".to_owned(),
                change if change < 0.0 => format!("{} shorter than", text::percent(-change)),
                change => format!("{} longer than", text::percent(change)),
            };
            format!("the recording of {other} is {length} that of {base}{because}")
        }
        (_, Some(step)) if step.change == Some(0.0) => format!("{other} is as fast as {base}"),
        (_, Some(step)) if step.significant => format!("{other} is {} than {base}{because}", judged(step)),
        (_, Some(step)) if step.interval().is_some() => {
            let because = if !causes.is_empty() { format!("; significant causes: {causes}") } else { String::new() };
            format!("{other} and {base} do not differ significantly: {}{because}", relative(step))
        }
        (_, Some(step)) => {
            format!("{other} is {} than {base} (no confidence interval){because}", judged(step))
        }
        (_, None) => format!("{other} and {base} have no steps to compare"),
    }
}

/// Whether the number of tokens per step differs.
pub(super) fn has_other_batch(diff: &Diff) -> bool {
    metric(diff, "tokens_per_step").and_then(|metric| metric.change).is_some_and(|change| change != 0.0)
}

/// A relative change, with half its interval.
fn relative(metric: &MetricDiff) -> String {
    let change = metric.relative.map_or_else(|| "unknown".into(), text::percent_more);
    format!("{change}{}", spread(metric))
}

/// How far the change may be off, of a relative change.
fn spread(metric: &MetricDiff) -> String {
    let (Some(interval), Some(base), Some(change)) = (metric.interval(), metric.base, metric.change) else {
        return String::new();
    };
    let off = (interval.high - change).max(change - interval.low) / base.abs().max(f64::MIN_POSITIVE);
    format!(" (±{})", text::percent(off))
}

/// A change of time, in words: before `than`.
fn judged(metric: &MetricDiff) -> String {
    let change = metric.relative.unwrap_or(0.0);
    // More than twice, and a share says little.
    if change >= 1.0 {
        return format!("{:.1} times slower", 1.0 + change);
    } else if change <= -0.5 {
        return format!("{:.1} times faster", 1.0 / (1.0 + change));
    }
    let word = if change < 0.0 { "faster" } else { "slower" };
    format!("{} {word}{}", text::percent(change.abs()), spread(metric))
}

/// The causes that matter, as shares of the base's step.
fn causes(time: &TimeDiff) -> String {
    let known = time.low_ns.is_some();
    let matters = |cause: &&TimeCause| cause.change_ns != 0 && (cause.significant || !known);
    let largest = time.causes.first().map_or(0, |cause| cause.change_ns.abs());
    let large = |cause: &&TimeCause| cause.change_ns.abs() as f64 >= LEAST_CAUSE * largest as f64;
    let share = |cause: &TimeCause| 100.0 * cause.change_ns as f64 / time.base_ns.max(1) as f64;
    let named = time.causes.iter().filter(matters).filter(large).take(CAUSES);
    named.map(|cause| format!("{:+.1}% {}", share(cause), cause.cause)).collect::<Vec<_>>().join(", ")
}

/// The facts below the answer; unknown ones are omitted.
pub(super) fn facts(diff: &Diff) -> Vec<Fact> {
    let fact = |about: &'static str, says: Option<String>| says.map(|says| Fact { about, says });
    [
        fact("changed", changed(diff)),
        fact(compared(diff), diff.step_time.as_ref().map(step)),
        fact("speed", speed(diff)),
        fact("memory", diff.peak_memory.as_ref().map(|memory| more_memory(diff, memory))),
    ]
    .into_iter()
    .chain(diff.notes.iter().map(|note| fact("note", Some(note.clone()))))
    .flatten()
    .collect()
}

fn changed(diff: &Diff) -> Option<String> {
    // What only one of them says may be the same in the other.
    let known = |setting: &SettingDiff| {
        let (base, other) = setting.base.as_ref().zip(setting.other.as_ref())?;
        Some(format!("{} {base} → {other}", setting.setting))
    };
    let settings: Vec<String> = diff.settings.iter().filter_map(known).collect();
    (!settings.is_empty()).then(|| settings.join(", "))
}

fn step(time: &TimeDiff) -> String {
    let duration = |time: i64| text::duration(time);
    let between = time
        .low_ns
        .zip(time.high_ns)
        .map_or_else(String::new, |(low, high)| format!(" (95% CI: {} to {})", text::longer(low), text::longer(high)));
    let (base, other) = (duration(time.base_ns), duration(time.other_ns));
    format!("{base} → {other}: {}{between}", text::longer(time.change_ns))
}

fn speed(diff: &Diff) -> Option<String> {
    let of = |name: &str, called: &str| {
        let metric = metric(diff, name)?;
        let (base, other) = (metric.base?, metric.other?);
        Some(format!("{} → {}{called}", value(metric.unit, base), value(metric.unit, other)))
    };
    let tokens = of("tokens_per_second", " tokens/s");
    let mfu = of("mfu", "").map(|mfu| format!("MFU {mfu}"));
    let known: Vec<String> = tokens.into_iter().chain(mfu).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn more_memory(diff: &Diff, memory: &MemoryDiff) -> String {
    let (base, other) = (text::bytes(memory.base_bytes as u64), text::bytes(memory.other_bytes as u64));
    let relative = 100.0 * memory.change_bytes as f64 / memory.base_bytes.max(1) as f64;
    if memory.change_bytes == 0 {
        return format!("peak {other}, same as {}", diff.base);
    }
    let largest = memory.causes.first().map_or(0, |cause| cause.change_bytes.abs());
    let large = memory
        .causes
        .iter()
        .filter(|cause| cause.change_bytes != 0 && cause.change_bytes.abs() as f64 >= LEAST_CAUSE * largest as f64);
    let causes = large.take(CAUSES).map(|cause| format!("{} {}", text::larger(cause.change_bytes), cause.cause));
    let causes = causes.collect::<Vec<_>>().join(", ");
    let inferred = if memory.inferred { " (categories inferred)" } else { "" };
    format!("peak {base} → {other} ({relative:+.1}%): {causes}{inferred}")
}

/// A figure in its unit.
pub(super) fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanoseconds => text::duration(value.round() as i64),
        Unit::Bytes => text::bytes(value.max(0.0) as u64),
        Unit::Share => text::percent(value),
        Unit::Tokens | Unit::TokensPerSecond => text::count(value.round().max(0.0) as u64),
        Unit::BytesPerSecond => text::bandwidth(value),
        Unit::Joules => text::joules(value),
    }
}
