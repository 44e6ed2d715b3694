//! Why no step of a job ends: who waits in what for whom, and where threads are.

use stepscope_plan::text;
use stepscope_traces::{NativeThread, Rank, RankInfo, Run, StackDump};

use crate::{
    figures::{HangCause, caller},
    findings::HangWords,
    job::hang::hang,
};

/// So many ranks are told one by one, and so many calls of a stack.
const MOST_TOLD: usize = 4;
const MOST_CALLS: usize = 4;

/// Why no step of a job ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HangExplanation {
    /// The ranks that are at fault; none, where that is not known.
    pub ranks: Vec<Rank>,
    /// What does not go on, in a sentence, where ranks wait in communication.
    pub summary: Option<String>,
    /// What that rests on, and where the threads of ranks are.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: Option<String>,
}

/// Why no step of a job ends, by what its ranks said when they were asked at that time, in nanoseconds since 1970.
pub fn why_hanging(run: &Run, asked_ns: i64) -> HangExplanation {
    let infos = || run.ranks.iter().map(|rank| &rank.info);
    let mut explanation = HangExplanation::default();
    let hang = hang(infos(), &run.info.groups);
    let at_fault = hang.as_ref().map_or_else(Vec::new, |hang| hang.ranks.clone());
    let mut ranks: Vec<&RankInfo> = infos().collect();
    ranks.sort_by_key(|info| !at_fault.contains(&info.rank));
    let (said, silent): (Vec<_>, Vec<_>) = ranks.into_iter().partition(|info| dump(info, asked_ns).is_some());
    let place = |info: &&RankInfo| Some((info.rank, dump(info, asked_ns).and_then(place)?));
    let places: Vec<(Rank, String)> = said.iter().take(MOST_TOLD).filter_map(place).collect();
    if let Some(hang) = hang {
        let is_known = places.iter().any(|(rank, _)| hang.ranks.contains(rank));
        let HangWords { summary, elsewhere, evidence, advice } = HangWords::of(&hang);
        explanation.evidence.extend(elsewhere.into_iter().filter(|_| !is_known).chain(evidence));
        explanation.advice = Some(advice).filter(|_| hang.cause != HangCause::Absent || !is_known);
        (explanation.ranks, explanation.summary) = (hang.ranks, Some(summary));
    }
    // Where somebody is who did not come is what matters most.
    let (blamed, others): (Vec<_>, Vec<_>) = places.into_iter().partition(|(rank, _)| explanation.ranks.contains(rank));
    let [blamed, others] =
        [blamed, others].map(|places| places.into_iter().map(|(rank, at)| format!("rank {rank}: {at}")));
    explanation.evidence.splice(0..0, blamed);
    explanation.evidence.extend(others);
    if !silent.is_empty() {
        let named = text::named_ranks(&silent.iter().map(|info| info.rank.0).collect::<Vec<_>>());
        explanation.evidence.push(format!("{named} did not answer"));
    }
    explanation
}

/// What a rank said when it was asked then.
fn dump(info: &RankInfo, asked_ns: i64) -> Option<&StackDump> {
    info.collector.stack_dump.as_ref().filter(|dump| dump.asked_ns.0 >= asked_ns)
}

/// Where a rank is: the calls of its main thread from the program's innermost one on, or what its threads do.
fn place(dump: &StackDump) -> Option<String> {
    if let Some(main) = dump.python.first() {
        let own = caller(&main.calls)?;
        let from = main.calls.iter().position(|call| call == own).unwrap_or(0);
        let inner = main.calls.first().filter(|_| from > 0).map(|inner| format!("in {inner}, "));
        let outer = main.calls[from..].iter().take(MOST_CALLS).map(String::as_str).collect::<Vec<_>>().join(", from ");
        return Some(format!("{}at {outer}", inner.unwrap_or_default()));
    }
    let why = dump.no_python.as_ref().map(|why| format!("{why}; "));
    let does = |thread: &NativeThread| {
        let count = if thread.count > 1 { format!("{} × ", thread.count) } else { String::new() };
        format!("{count}{} {}", thread.name, thread.does)
    };
    let threads: Vec<String> = dump.native.iter().take(MOST_CALLS).map(does).collect();
    (!threads.is_empty()).then(|| format!("{}{}", why.unwrap_or_default(), threads.join(", ")))
}
