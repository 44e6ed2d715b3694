//! `--fail-on`: limits on changes.

use std::{io::Write, process::ExitCode};

use anstyle::AnsiColor;
use anyhow::{Result, bail};
use stepscope_analyzer::{BUS_BANDWIDTH, DIFF_METRICS, Diff, MetricDiff};
use stepscope_plan::text;

use super::answer;
use crate::nearest::nearest;

/// A limit: a metric, and how far it may rise or fall, relative to the base.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    metric: String,
    /// Negative, where it is one of falling.
    change: f64,
}

/// Reads `METRIC:+3%` or `METRIC:-2%`.
pub(super) fn parse(text: &str) -> Result<Limit, String> {
    let wrong = || format!("`{text}` is not a limit; use METRIC:+3% or METRIC:-2%");
    let (metric, change) = text.rsplit_once(':').ok_or_else(wrong)?;
    let number = change.strip_suffix('%').ok_or_else(wrong)?;
    let number = number.strip_prefix('+').or_else(|| number.starts_with('-').then_some(number)).ok_or_else(wrong)?;
    let has_one_sign = change.chars().filter(|character| matches!(character, '+' | '-')).count() == 1;
    let change: f64 = number.parse().map_err(|_| wrong())?;
    if metric.is_empty() || !change.is_finite() || !has_one_sign {
        return Err(wrong());
    }
    if !DIFF_METRICS.contains(&metric) && !metric.starts_with(BUS_BANDWIDTH) {
        let known = DIFF_METRICS.join(", ");
        let nearest = nearest(metric, DIFF_METRICS.iter().copied());
        let nearest = nearest.map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"));
        return Err(format!(
            "unknown metric `{metric}`{nearest}; known metrics are {known}, and {BUS_BANDWIDTH}OPERATION"
        ));
    }
    // -0% is a limit of falling.
    Ok(Limit {
        metric: metric.into(),
        change: if change == 0.0 && text.contains(":-") { -0.0 } else { change / 100.0 },
    })
}

impl Limit {
    fn is_crossed_by(&self, change: f64) -> bool {
        if self.change.is_sign_negative() { change < self.change } else { change > self.change }
    }

    fn words(&self) -> String {
        format!("{}:{:+}%", self.metric, (self.change * 1e6).round() / 1e4)
    }
}

/// Reports which limits are crossed; status 1 if any is. Only significant changes count.
pub(super) fn check(diffs: &[Diff], limits: &[Limit]) -> Result<ExitCode> {
    let mut crossed = false;
    for diff in diffs.iter().filter(|_| !limits.is_empty()) {
        if !diff.comparable {
            bail!("{} cannot be checked against limits: {}", diff.other, diff.why_not.join("; "));
        }
        for limit in limits {
            crossed |= holds(diff, limit)?.is_some_and(|why| {
                let red = AnsiColor::Red.on_default().bold();
                // A closed stderr leaves nobody to tell.
                drop(writeln!(anstream::stderr(), "{red}failed:{red:#} {}", text::printable(&why)));
                true
            });
        }
    }
    Ok(if crossed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Why a limit does not hold, if it does not.
fn holds(diff: &Diff, limit: &Limit) -> Result<Option<String>> {
    let Some(metric) = answer::metric(diff, &limit.metric) else {
        bail!("neither run has {}, so {} cannot be checked", limit.metric, limit.words());
    };
    // From nothing, any change is without bounds.
    let relative =
        metric.relative.or(metric.change.map(|change| if change == 0.0 { 0.0 } else { change * f64::INFINITY }));
    let (Some(base), Some(other), Some(change)) = (metric.base, metric.other, relative) else {
        bail!("{} is not known for both runs, so {} cannot be checked", limit.metric, limit.words());
    };
    let (base, other) = (answer::value(metric.unit, base), answer::value(metric.unit, other));
    let by = if change.is_finite() { format!(", {}", text::percent_more(change)) } else { String::new() };
    let changed = format!("{} of {}: {base} → {other}{by}", limit.metric, diff.other);
    if !limit.is_crossed_by(change) {
        return Ok(None);
    }
    match metric.interval() {
        // The limit is the floor, whoever says one.
        Some(interval) if interval.excludes_zero() => Ok(Some(format!(
            "{changed}{}, beyond the limit {}{}",
            chance(metric),
            limit.words(),
            other_step(diff, limit)
        ))),
        Some(_) => Ok(None),
        None => bail!("{changed}, beyond the limit {}, but a single step has no confidence interval", limit.words()),
    }
}

/// What else a limit of a step's time may be crossed for.
fn other_step(diff: &Diff, limit: &Limit) -> &'static str {
    match limit.metric == "step_time" && answer::has_other_batch(diff) {
        true => "; note that tokens per step differ: a limit on time_per_token may fit better",
        false => "",
    }
}

/// What the change lies between, of the base's figure.
fn chance(metric: &MetricDiff) -> String {
    let base = metric.base.unwrap_or(0.0);
    metric.interval().filter(|interval| interval.low < interval.high && base != 0.0).map_or_else(
        String::new,
        |interval| {
            format!(
                " (95% CI: {} to {})",
                text::percent_more(interval.low / base),
                text::percent_more(interval.high / base)
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_typed_in_two_ways() {
        assert_eq!(parse("step_time:+3%"), Ok(Limit { metric: "step_time".into(), change: 0.03 }));
        assert_eq!(parse("mfu:-2%"), Ok(Limit { metric: "mfu".into(), change: -0.02 }));
        for text in [
            "",
            "step_time",
            "step_time:3%",
            "step_time:+3",
            ":+3%",
            "mfu:-x%",
            "mfu:+-3%",
            "mfu:++3%",
            "mfu:-+3%",
            "mfu:+NaN%",
            "mfu:+inf%",
            "mfu:%",
            "mfoo:+3%",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_have_a_side() {
        let crossed = |limit: &str, change: f64| parse(limit).unwrap().is_crossed_by(change);
        assert!(crossed("step_time:+3%", 0.031) && !crossed("step_time:+3%", 0.03) && !crossed("step_time:+3%", -0.5));
        assert!(crossed("mfu:-2%", -0.021) && !crossed("mfu:-2%", -0.01) && !crossed("mfu:-2%", 0.5));
        assert!(crossed("mfu:-0%", -0.001) && !crossed("mfu:-0%", 0.001) && crossed("mfu:+0%", 0.001));
    }
}
