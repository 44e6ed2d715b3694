//! The report in at most ten lines, however long: what was run, how fast, and what to do first.

use stepscope_analyzer::{Analysis, Finding};
use stepscope_plan::text;

use super::{report, waterfall};

/// Facts that are told.
const FACTS: [&str; 3] = ["step", "speed", "memory"];
/// Findings that are told.
const MOST_FINDINGS: usize = 3;

/// The report.
pub(super) fn written(analysis: &Analysis) -> String {
    let mut lines = vec![format!("{}  {}", analysis.run.name, report::what_was_run(analysis))];
    lines.extend(report::loss(analysis).map(|lost| format!("lost      {lost}")));
    lines.extend(waterfall::summary(analysis).map(|parts| format!("waterfall {parts}")));
    let facts = report::facts(analysis);
    let facts = facts.iter().filter(|fact| FACTS.contains(&fact.about));
    lines.extend(facts.map(|fact| format!("{:<10}{}", fact.about, fact.says)));
    if analysis.findings.is_empty() {
        lines.push("nothing stands out".into());
    }
    for (number, finding) in (1..).zip(analysis.findings.iter().take(MOST_FINDINGS)) {
        lines.push(format!("{number}  {}{}: {}", finding.summary, win(finding), finding.advice));
    }
    let more = analysis.findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        lines.push(format!("and {}", text::counted(more as u64, "more finding")));
    }
    lines.iter().map(|line| text::printable(line) + "\n").collect()
}

/// What a finding would win.
pub(super) fn win(finding: &Finding) -> String {
    finding.step_without_ns.map_or_else(String::new, |step| format!(" (a step would take {})", text::duration(step)))
}
