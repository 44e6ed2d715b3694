//! What happened, and why: from what a watch notices to an incident that is written down.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use anyhow::Result;
use nix::sys::signal::Signal;
use stepscope_analyzer::{Analysis, Notice, Selection, StepChoice, analyze, why_slow};
use stepscope_plan::text;
use stepscope_traces::{
    ClockSnapshot, Incident, IncidentKind, KeptIncident, Nanos, Rank, RankStacks, Run, Step, Window, now,
};

/// What was recorded for so long before an incident is kept with it, and so many of its steps.
const KEPT: Duration = Duration::from_secs(60);
const KEPT_STEPS: i64 = 20;
/// So much of a long recording is looked at, at least.
const NEAR: Duration = Duration::from_secs(20);
/// A longer recording is not analyzed for an incident, nor is one read in which it is somewhere.
const MOST_ANALYZED: u64 = 50_000_000;
const MOST_READ: u64 = 2_000_000_000;
/// What an exception says is shown so far, and what comes of something else.
const LONGEST: usize = 300;
const LONGEST_CONSEQUENCE: usize = 160;
/// So much is said of one incident.
pub(super) const MOST_EVIDENCE: usize = 8;

/// What happened.
pub(super) struct Happened {
    pub(super) kind: IncidentKind,
    pub(super) step: Option<Step>,
    pub(super) ranks: Vec<Rank>,
    pub(super) summary: String,
    pub(super) evidence: Vec<String>,
    /// How long the time is that it is about.
    pub(super) took: Duration,
    /// By how much a slow step took longer than usual.
    pub(super) excess_ns: i64,
    /// Whether the job ended with it.
    pub(super) ended_job: bool,
    /// Ranks that are at fault since they did not run.
    pub(super) stood_still: Option<Vec<Rank>>,
    /// Where the threads of ranks are, where they were asked.
    pub(super) stacks: Vec<RankStacks>,
}

impl Happened {
    pub(super) fn new(kind: IncidentKind, summary: String) -> Happened {
        let (ranks, evidence, took) = (Vec::new(), Vec::new(), Duration::ZERO);
        let (excess_ns, ended_job, stood_still, stacks) = (0, false, None, Vec::new());
        Happened { kind, step: None, ranks, summary, evidence, took, excess_ns, ended_job, stood_still, stacks }
    }

    /// What a watch has noticed, if it is worth being written down.
    pub(super) fn of(notice: &Notice) -> Option<Happened> {
        let of_rank = |kind, rank: Rank, summary| Happened { ranks: vec![rank], ..Happened::new(kind, summary) };
        Some(match notice {
            Notice::SlowStep { rank, step, took_ns, usual_ns } => Happened {
                step: Some(*step),
                excess_ns: took_ns - usual_ns,
                took: Duration::from_nanos((took_ns + KEPT_STEPS * usual_ns).unsigned_abs()),
                ..of_rank(
                    IncidentKind::SlowStep,
                    *rank,
                    format!("step {step} took {}, usually {}", text::duration(*took_ns), text::duration(*usual_ns)),
                )
            },
            Notice::LossNotFinite { rank, step, loss } => {
                let at = step.map_or_else(String::new, |step| format!(" in step {step}"));
                Happened {
                    step: *step,
                    ..of_rank(IncidentKind::LossNotFinite, *rank, format!("the loss is {loss}{at}"))
                }
            }
            Notice::OutOfMemory(rank) => {
                of_rank(IncidentKind::OutOfMemory, *rank, format!("out of memory on rank {rank}"))
            }
            Notice::Raised(_, what) if what.starts_with("KeyboardInterrupt") => return None,
            Notice::Raised(rank, what) => {
                let what = text::shortened(&text::printable(what.lines().last().unwrap_or_default()), LONGEST);
                of_rank(IncidentKind::Exception, *rank, format!("rank {rank} raised {what}"))
            }
            Notice::Gone(rank, None) => {
                of_rank(IncidentKind::Killed, *rank, format!("the process of rank {rank} was killed, or crashed"))
            }
            Notice::Gone(rank, Some(why)) => {
                let why = text::shortened(&text::printable(why), LONGEST);
                of_rank(IncidentKind::Failed, *rank, format!("rank {rank} ended early: {why}"))
            }
        })
    }

    /// Whether a job ends by it.
    pub(super) fn is_fatal(&self) -> bool {
        match self.kind {
            IncidentKind::SlowStep | IncidentKind::LossNotFinite | IncidentKind::Hang => false,
            IncidentKind::OutOfMemory
            | IncidentKind::Exception
            | IncidentKind::Interrupted
            | IncidentKind::Terminated
            | IncidentKind::Killed
            | IncidentKind::Failed => true,
        }
    }

    /// How long after it the end of the job is a consequence of it, if it can be.
    pub(super) fn consequences(&self) -> Option<Duration> {
        match self.kind {
            IncidentKind::SlowStep | IncidentKind::Hang => None,
            // Programs that look at their loss end by themselves.
            IncidentKind::LossNotFinite => Some(Duration::from_secs(10)),
            _ => Some(Duration::from_secs(120)),
        }
    }

    /// Whether one that comes later is of the same incident.
    pub(super) fn goes_with(&self, later: &Happened) -> bool {
        match later.kind {
            _ if later.is_fatal() => self.consequences().is_some(),
            IncidentKind::SlowStep => self.kind == later.kind && self.is_at(later.step),
            kind => self.kind == kind,
        }
    }

    /// Whether it is about this step, or one beside it: ranks may be a little apart.
    pub(super) fn is_at(&self, step: Option<Step>) -> bool {
        self.step.zip(step).is_some_and(|(one, other)| one.0.abs_diff(other.0) <= 1)
    }

    /// Adds which processes stood still in a slow step, and are the cause of it.
    pub(super) fn add_standstills(&mut self, standstills: &[(Rank, i64)]) {
        if self.kind != IncidentKind::SlowStep {
            return;
        }
        let longest = standstills.iter().map(|(_, stood)| *stood).max().unwrap_or(0);
        let at_fault = standstills.iter().filter(|(_, stood)| *stood > 0 && 2 * stood >= self.excess_ns);
        let ranks: Vec<Rank> = at_fault.map(|(rank, _)| *rank).collect();
        if ranks.is_empty() {
            return;
        }
        let are_all = ranks.len() == standstills.len() && ranks.len() > 1;
        let who = if are_all {
            "no process of the job ran".into()
        } else {
            let named = text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>());
            format!("{named} did not run")
        };
        let why = "stopped, or without a processor";
        self.evidence.push(format!("{who} for {} of it: {why}", text::duration(longest)));
        self.stood_still = Some(if are_all { Vec::new() } else { ranks });
    }

    /// Adds another one, which came later. What came first is the cause of the others.
    pub(super) fn add(&mut self, other: Happened) {
        if other.is_fatal() {
            // Whoever asks a job to end has its processes end.
            let is_meant = matches!(self.kind, IncidentKind::Interrupted | IncidentKind::Terminated);
            if self.evidence.len() < MOST_EVIDENCE && !(is_meant && other.kind == IncidentKind::Killed) {
                let then = text::shortened(&other.summary, LONGEST_CONSEQUENCE);
                self.evidence.push(format!("then {then}"));
            }
        } else if self.step == other.step {
            self.ranks.extend(other.ranks);
        }
    }
}

/// What has happened by notices, in the order in which one is the cause of another, where they come at once: a rank that is gone
/// makes others fail to communicate, and one that fails has its launcher end the others. If all that many ranks are gone at once,
/// none of them is at fault.
pub(super) fn in_order(mut notices: Vec<Notice>, ranks: usize) -> Vec<Happened> {
    const OF_COMMUNICATION: [&str; 6] = ["NCCL", "Gloo", "gloo", "Connection", "peer", "DistBackendError"];
    notices.sort_by_key(|notice| match notice {
        Notice::SlowStep { .. } | Notice::LossNotFinite { .. } => 0,
        Notice::OutOfMemory(_) => 1,
        Notice::Raised(_, what) if !OF_COMMUNICATION.iter().any(|word| what.contains(word)) => 2,
        Notice::Gone(_, None) => 3,
        Notice::Raised(..) | Notice::Gone(_, Some(_)) => 4,
    });
    let is_gone = |notice: &Notice| matches!(notice, Notice::Gone(_, None));
    let gone = notices.iter().filter(|notice| is_gone(notice)).count();
    let mut happened = Vec::new();
    if gone > 1 && gone == ranks {
        notices.retain(|notice| !is_gone(notice));
        let summary = "all processes of the job were killed, or crashed, at once";
        happened.push(Happened::new(IncidentKind::Killed, summary.into()));
    }
    happened.extend(notices.iter().filter_map(Happened::of));
    happened
}

/// How a job ended that did not end well.
pub(super) fn ended(status: ExitStatus) -> Happened {
    // Shells add 128 for a command that a signal ended.
    let by = status.signal().or_else(|| status.code().filter(|code| (129..=159).contains(code)).map(|code| code - 128));
    let kind = match by {
        Some(signal) if signal == Signal::SIGINT as i32 => IncidentKind::Interrupted,
        Some(_) => IncidentKind::Killed,
        None => IncidentKind::Failed,
    };
    let named =
        |signal: i32| Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |name| name.to_string());
    let summary = match (status.code(), by) {
        (None, Some(signal)) => format!("the command was killed by {}", named(signal)),
        (Some(code), Some(signal)) => format!("the command exited with status {code} ({})", named(signal)),
        (Some(code), None) => format!("the command exited with status {code}"),
        (None, None) => "the command ended in an unknown way".into(),
    };
    Happened { ended_job: true, ..Happened::new(kind, summary) }
}

/// Makes an incident of what has just happened, and keeps what was recorded around it.
pub(super) fn keep(run: &Run, happened: &Happened) -> Result<KeptIncident> {
    let Happened { kind, step, ranks, summary, evidence, ended_job, .. } = happened;
    let incident = Incident {
        kind: *kind,
        time_ns: ClockSnapshot::take().wall_ns,
        step: *step,
        ranks: ranks.clone(),
        summary: summary.clone(),
        evidence: evidence.clone(),
        steps: None,
        ended_job: *ended_job,
        explained: false,
        stacks: happened.stacks.clone(),
    };
    let kept = KeptIncident::create(&run.path, incident)?;
    keep_recording(run, &kept, happened);
    Ok(kept)
}

fn keep_recording(run: &Run, kept: &KeptIncident, happened: &Happened) {
    let Some(bounds) = run.info.black_box else { return };
    let ranks: Vec<_> = run.ranks.iter().map(|rank| (rank.info.rank, rank.path.as_path())).collect();
    // What happened is told all the same.
    drop(kept.keep(&run.path, &ranks, KEPT.max(happened.took), bounds.incident_bytes() / 3));
    KeptIncident::let_go_of_oldest(&run.path, bounds.incident_bytes());
}

/// Writes down what happened, with what was recorded around it until now, and says what that tells of it.
pub(super) fn write(run: &Run, mut happened: Happened, kept: Option<KeptIncident>) -> Result<KeptIncident> {
    happened.ranks.sort();
    happened.ranks.dedup();
    let mut kept = match kept {
        Some(kept) => {
            keep_recording(run, &kept, &happened);
            kept
        }
        None => keep(run, &happened)?,
    };
    let analysis = match happened.kind {
        IncidentKind::SlowStep | IncidentKind::LossNotFinite | IncidentKind::OutOfMemory => {
            analysis(run, &kept, happened.took.max(NEAR))
        }
        // Of others it would tell nothing.
        _ => None,
    };
    let incident = &mut kept.incident;
    (incident.summary, incident.evidence) = (happened.summary, happened.evidence);
    (incident.ranks, incident.step, incident.ended_job) = (happened.ranks, happened.step, happened.ended_job);
    match &analysis {
        Some(analysis) => tell(incident, analysis),
        None if incident.kind == IncidentKind::SlowStep => {
            let why = "where its time went is not known: too much was recorded around it to look at, or nothing";
            incident.evidence.push(why.into());
        }
        None => {}
    }
    if let Some(stood_still) = happened.stood_still {
        incident.ranks = stood_still;
    }
    incident.explained = true;
    kept.write()?;
    Ok(kept)
}

/// What was recorded around it comes to, if that can be told.
fn analysis(run: &Run, kept: &KeptIncident, within: Duration) -> Option<Analysis> {
    let bytes = |run: &Run| run.ranks.iter().map(|rank| rank.bytes()).sum::<u64>();
    let around = kept.has_recording().then(|| Run::open(&kept.path).ok()).flatten();
    let run = around.as_ref().unwrap_or(run);
    let mut selection = Selection { steps: StepChoice::All, ..Selection::default() };
    if bytes(run) > MOST_ANALYZED {
        // Of those of this host, whose clock is ours.
        let from = Nanos(now().0.saturating_sub(i64::try_from(within.as_nanos()).unwrap_or(i64::MAX)));
        selection.window = Some(Window { from, to: Nanos(i64::MAX) });
        selection.ranks = run.ranks.iter().filter(|rank| rank.info.runs_here()).map(|rank| rank.info.rank).collect();
    }
    (bytes(run) <= MOST_READ).then(|| analyze(run, &selection, &|_| {}).ok()).flatten()
}

/// Adds what an analysis tells of it.
fn tell(incident: &mut Incident, analysis: &Analysis) {
    let steps = analysis.steps.iter().map(|step| step.step);
    incident.steps = steps.clone().min().zip(steps.max());
    let finding = |kind: &str| analysis.findings.iter().find(|finding| finding.kind == kind);
    let found = match incident.kind {
        IncidentKind::SlowStep => {
            match incident.step.and_then(|step| why_slow(analysis, step)) {
                Some(cause) => {
                    incident.ranks = cause.ranks;
                    incident.evidence.extend(cause.evidence);
                }
                None => incident
                    .evidence
                    .push("that step was not recorded, or is not kept: where its time went is not known".into()),
            }
            None
        }
        IncidentKind::LossNotFinite => finding("loss-not-finite"),
        IncidentKind::OutOfMemory => finding("out-of-memory"),
        // Of a hang its processes have told.
        IncidentKind::Hang
        | IncidentKind::Exception
        | IncidentKind::Interrupted
        | IncidentKind::Terminated
        | IncidentKind::Killed
        | IncidentKind::Failed => None,
    };
    if let Some(found) = found {
        incident.summary.clone_from(&found.summary);
        if !found.evidence.text.is_empty() {
            incident.evidence.insert(0, found.evidence.text.clone());
        }
        incident.evidence.push(found.advice.clone());
        incident.step = found.evidence.steps.first().copied().or(incident.step);
        if !found.evidence.ranks.is_empty() {
            incident.ranks.clone_from(&found.evidence.ranks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_at_fault_where_all_are_gone_at_once() {
        let gone = |ranks: std::ops::Range<u32>| ranks.map(|rank| Notice::Gone(Rank(rank), None)).collect::<Vec<_>>();
        let [happened] = in_order(gone(0..2), 2).try_into().ok().unwrap();
        assert!(happened.ranks.is_empty() && happened.summary.contains("all processes"), "{}", happened.summary);
        let happened = in_order(gone(1..2), 2);
        assert_eq!(happened.iter().map(|happened| happened.ranks.clone()).collect::<Vec<_>>(), [[Rank(1)]]);
    }
}
