//! A job in which no step ends: its processes are asked where they are, and what they say is put together.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use stepscope_analyzer::{HangExplanation, JobWatch, why_hanging};
use stepscope_collector::injection::DumpRequest;
use stepscope_plan::text;
use stepscope_traces::{ClockSnapshot, IncidentKind, Nanos, Phase, Rank, RankInfo, RankStacks, Run, State, Step};

use super::explain::Happened;

/// How long processes have to answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// So much is said of a hang at first; what comes of it is added.
const MOST_AT_FIRST: usize = 6;

/// A question to all processes of a job.
pub(super) struct Question {
    asked_ns: Nanos,
    since: Instant,
}

impl Question {
    /// Asks where they are.
    pub(super) fn ask(run: &Path) -> Question {
        let asked_ns = ClockSnapshot::take().wall_ns;
        // Who cannot be asked does not answer.
        drop(DumpRequest { wall_ns: asked_ns, is_over: false }.leave(run));
        Question { asked_ns, since: Instant::now() }
    }

    /// Says that the job goes on, and what was said holds no more.
    pub(super) fn withdraw(run: &Path) {
        drop(DumpRequest { wall_ns: ClockSnapshot::take().wall_ns, is_over: true }.leave(run));
    }

    /// Whether nobody else is going to answer.
    pub(super) fn is_answered(&self, run: &Run) -> bool {
        let mut asked = run.ranks.iter().filter(|rank| rank.state == State::Recording).map(|rank| &rank.info);
        self.since.elapsed() >= PATIENCE || asked.all(|info| self.has_answered(info) || is_stopped(info))
    }

    fn has_answered(&self, info: &RankInfo) -> bool {
        let dump = info.collector.stack_dump.as_ref().filter(|dump| dump.asked_ns >= self.asked_ns);
        dump.is_some_and(|dump| dump.no_python.is_none())
    }

    /// Who does something else than training, and what.
    pub(super) fn aside<'a>(&self, run: &'a Run) -> impl Iterator<Item = (Rank, Phase)> + 'a {
        let asked_ns = self.asked_ns;
        run.ranks.iter().filter_map(move |rank| {
            let dump = rank.info.collector.stack_dump.as_ref().filter(|dump| dump.asked_ns >= asked_ns)?;
            Some((rank.info.rank, dump.aside?))
        })
    }

    /// What is known of the job by what its processes have said, and what they do.
    pub(super) fn happened(&self, job: &JobWatch, silence: Duration) -> Happened {
        let (steps, run) = (job.last_steps(), job.run());
        let HangExplanation { ranks: blamed, summary, evidence: why, advice } = why_hanging(run, self.asked_ns.0);
        let newest = steps.iter().filter_map(|last| last.step).max();
        // That the last one of a rank is not heard of yet says nothing.
        let is_behind = |step: Option<Step>| newest.is_some_and(|newest| step.is_none_or(|step| step.0 + 1 < newest.0));
        let behind: Vec<Rank> = steps.iter().filter(|last| is_behind(last.step)).map(|last| last.rank).collect();
        let stopped: Vec<Rank> =
            run.ranks.iter().filter(|rank| is_stopped(&rank.info)).map(|rank| rank.info.rank).collect();
        let aside = self.aside(run).map(|(rank, phase)| match phase {
            Phase::Checkpoint => format!("rank {rank} saves a checkpoint"),
            _ => format!("rank {rank} evaluates"),
        });
        let last = newest.map(|step| format!("the last step that ended is step {step}"));
        let mut evidence: Vec<String> = aside.take(1).chain(last).collect();
        if !behind.is_empty() {
            evidence.push(format!("{} ended fewer steps than the others", named(&behind)));
        }
        let (ranks, reason, advice) = if !stopped.is_empty() {
            evidence.splice(0..0, summary);
            let are = if stopped.len() == 1 { "is" } else { "are" };
            let reason = format!(": {} {are} stopped (by SIGSTOP, or a debugger)", named(&stopped));
            let stopped_infos = run.ranks.iter().map(|rank| &rank.info).filter(|info| stopped.contains(&info.rank));
            let pids: BTreeSet<u32> = stopped_infos.map(|info| info.pid).collect();
            let pids: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
            (stopped, reason, Some(format!("`kill -CONT {}` lets it go on", pids.join(" "))))
        } else if let Some(summary) = summary {
            (blamed, format!(": {summary}"), advice)
        } else {
            (behind, String::new(), advice)
        };
        let room = MOST_AT_FIRST.saturating_sub(evidence.len() + usize::from(advice.is_some()));
        evidence.splice(0..0, why.into_iter().take(room));
        evidence.extend(advice);
        let long = text::duration(silence.as_nanos() as i64);
        Happened {
            ranks,
            evidence,
            took: silence,
            stacks: self.stacks(run),
            ..Happened::new(IncidentKind::Hang, format!("no step has ended for {long}{reason}"))
        }
    }

    /// Where the threads of all ranks are that have answered.
    fn stacks(&self, run: &Run) -> Vec<RankStacks> {
        let stacks = |info: &RankInfo| {
            let dump = info.collector.stack_dump.clone().filter(|dump| dump.asked_ns >= self.asked_ns)?;
            Some(RankStacks { rank: info.rank, python: dump.python, native: dump.native })
        };
        run.ranks.iter().filter_map(|rank| stacks(&rank.info)).collect()
    }
}

fn is_stopped(info: &RankInfo) -> bool {
    matches!(info.process_state(), Some('T' | 't'))
}

fn named(ranks: &[Rank]) -> String {
    text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())
}
