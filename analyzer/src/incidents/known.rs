//! All that is known to have gone wrong in a run: what was written down, and an end that nobody was left to write down.

use std::path::PathBuf;

use stepscope_plan::text;
use stepscope_traces::{Incident, IncidentKind, KeptIncident, RankDirectory, Run, State};

/// An incident that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownIncident {
    /// What happened.
    pub incident: Incident,
    /// Where it is kept; none, if nobody wrote it down.
    pub path: Option<PathBuf>,
    /// Whether what was recorded around it is kept there, as a run.
    pub has_recording: bool,
}

/// What went wrong in a run, the first first.
pub fn known_incidents(run: &Run) -> Vec<KnownIncident> {
    let kept = KeptIncident::all_of(&run.path).into_iter().map(|kept| KnownIncident {
        has_recording: kept.has_recording(),
        path: Some(kept.path),
        incident: kept.incident,
    });
    let mut known: Vec<KnownIncident> = kept.collect();
    known.extend(unexplained_end(run, &known));
    known
}

/// The end of a run that broke off, if nobody was left to write that down.
fn unexplained_end(run: &Run, known: &[KnownIncident]) -> Option<KnownIncident> {
    if run.state() != State::Interrupted || known.iter().any(|known| known.incident.ended_job) {
        return None;
    }
    let broken: Vec<&RankDirectory> = run.ranks.iter().filter(|rank| rank.state == State::Interrupted).collect();
    let why = broken.iter().find_map(|rank| rank.info.reason.clone());
    let ranks: Vec<_> = broken.iter().map(|rank| rank.info.rank).collect();
    let named = text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>());
    let time_ns = broken.iter().filter_map(|rank| rank.last_heard()).max()?;
    let incident = Incident {
        kind: if why.is_some() { IncidentKind::Failed } else { IncidentKind::Killed },
        time_ns,
        step: None,
        ranks,
        summary: format!("the recording of {named} broke off"),
        evidence: vec![why.unwrap_or_else(|| {
            "nothing says why: the whole job was killed at once, by the out-of-memory killer or the scheduler perhaps".into()
        })],
        steps: None,
        ended_job: true,
        explained: true,
        stacks: Vec::new(),
    };
    Some(KnownIncident { incident, path: None, has_recording: false })
}
