//! Findings, on a track of all ranks, and what each rests on, on the tracks of its ranks.

use stepscope_analyzer::{Analysis, Finding};
use stepscope_traces::{
    Rank,
    export::perfetto::{Fact, NamedStretch, Stretches},
};

const TRACK: &str = "findings";

/// Findings, the largest win first. Each is as long as the steps that it is about: all that count, or those that differ.
pub(super) fn of_run(analysis: &Analysis, counted: (i64, i64)) -> Stretches {
    let stretch = |finding: &Finding| {
        let (start_ns, end_ns) = differing_steps(analysis, finding).unwrap_or(counted);
        NamedStretch { start_ns, end_ns, name: finding.summary.clone(), arguments: arguments(finding) }
    };
    let mut stretches: Vec<NamedStretch> = analysis.findings.iter().map(stretch).collect();
    stretches.sort_by_key(|stretch| (stretch.start_ns, -stretch.end_ns));
    Stretches { name: TRACK, stretches }
}

/// From the first to the last step that a finding is about, where it is not about all of them. One that is has a step to look
/// at, and stretches there.
fn differing_steps(analysis: &Analysis, finding: &Finding) -> Option<(i64, i64)> {
    if !finding.evidence.spans.is_empty() {
        return None;
    }
    let named = || analysis.steps.iter().filter(|step| finding.evidence.steps.contains(&step.step));
    let begins = named().map(|step| step.aligned_start_ns).min()?;
    let ends = named().map(|step| step.aligned_start_ns.saturating_add(step.duration_ns)).max()?;
    Some((begins, ends))
}

/// The stretches of a rank in which findings cost most.
pub(super) fn of_rank(analysis: &Analysis, rank: Rank) -> Stretches {
    let mut stretches: Vec<NamedStretch> = Vec::new();
    for finding in &analysis.findings {
        let places = finding.evidence.spans.iter().filter(|place| place.rank == rank);
        stretches.extend(places.map(|place| NamedStretch {
            start_ns: place.start_ns,
            end_ns: place.end_ns,
            name: finding.summary.clone(),
            arguments: arguments(finding),
        }));
    }
    stretches.sort_by_key(|stretch| (stretch.start_ns, -stretch.end_ns));
    Stretches { name: TRACK, stretches }
}

fn arguments(finding: &Finding) -> Vec<(String, Fact)> {
    let list = |numbers: Vec<String>| (!numbers.is_empty()).then(|| Fact::Text(numbers.join(", ")));
    let milliseconds = |time: Option<i64>| time.map(|time| Fact::Number(time as f64 / 1e6));
    let facts = [
        ("kind", Some(Fact::Text(finding.kind.into()))),
        ("share", Some(Fact::Number(finding.share))),
        ("evidence", Some(Fact::Text(finding.evidence.text.clone()))),
        ("try", Some(Fact::Text(finding.advice.clone()))),
        ("lost ms per step", milliseconds(finding.lost_ns)),
        ("step without it, ms", milliseconds(finding.step_without_ns)),
        ("ranks", list(finding.evidence.ranks.iter().map(ToString::to_string).collect())),
        ("steps", list(finding.evidence.steps.iter().map(ToString::to_string).collect())),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name.into(), fact?))).collect()
}
