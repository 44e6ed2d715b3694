//! The report in at most ten lines, however long: what was run, how fast, and what to do first.

use stepscope_analyzer::{Analysis, Finding};
use stepscope_plan::text;

use super::{report, waterfall};

/// Facts that are told.
const FACTS: [&str; 3] = ["step", "speed", "memory"];
/// What is told where nothing stands out: it may be why.
const MISSING: &str = "missing";
/// Findings that are told.
const MOST_FINDINGS: usize = 3;

/// The report.
pub(super) fn written(analysis: &Analysis) -> String {
    let mut lines = vec![format!("{}  {}", analysis.run.name, report::what_was_run(analysis))];
    lines.extend(report::loss(analysis).map(|lost| format!("lost      {lost}")));
    lines.extend(waterfall::summary(analysis).map(|parts| format!("waterfall {parts}")));
    let facts = report::facts(analysis);
    let is_told = |about: &str| FACTS.contains(&about) || about == MISSING && analysis.findings.is_empty();
    let facts = facts.iter().filter(|fact| is_told(fact.about));
    lines.extend(facts.map(|fact| format!("{:<10}{}", fact.about, fact.says)));
    if analysis.findings.is_empty() {
        lines.push("nothing stands out".into());
    }
    for (number, finding) in (1..).zip(analysis.findings.iter().take(MOST_FINDINGS)) {
        lines.push(format!("{number}  {}{}: {}", finding.summary, win(analysis, finding), finding.advice));
    }
    let more = analysis.findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        lines.push(format!("and {}", text::counted(more as u64, "more finding")));
    }
    lines.iter().map(|line| text::printable(line) + "\n").collect()
}

/// What a finding would win.
pub(super) fn win(analysis: &Analysis, finding: &Finding) -> String {
    let Some((without, step)) = finding.step_without_ns.zip(analysis.step_ns()) else { return String::new() };
    let what = if analysis.step_time.is_none() || analysis.window.whole { "it" } else { "a step" };
    format!(" ({what} would take {} instead of {})", text::duration(without), text::duration(step))
}
