//! Why a step was slow: where its time went, against the other steps, and on which rank.

use stepscope_plan::text;
use stepscope_traces::{Rank, Step};

use crate::figures::{Analysis, StepFigures};

/// A rank is at fault on which at least this share of the time was lost elsewhere than in waiting for others.
const LEAST_SHARE: f64 = 0.5;

/// So many ranks are told one by one.
const MOST_TOLD: usize = 4;
const IDLE: &str = "idle";

/// Why a step was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowStepCause {
    /// The ranks that are at fault; none, where all are alike.
    pub ranks: Vec<Rank>,
    /// Where the time went, a sentence for each rank that has something to say.
    pub evidence: Vec<String>,
}

/// By how much a part of a step was longer than usual on a rank.
struct Longer {
    rank: Rank,
    own: [(&'static str, i64); 3],
    waiting: i64,
    /// How much longer the host waited for its input data.
    data: i64,
}

impl Longer {
    /// Of a step of a rank against its others.
    fn of(step: &StepFigures, others: &[&StepFigures]) -> Longer {
        let usual = |part: fn(&StepFigures) -> i64| {
            let mut all: Vec<i64> = others.iter().map(|other| part(other)).collect();
            let middle = all.len() / 2;
            *all.select_nth_unstable(middle).1
        };
        let longer = |part: fn(&StepFigures) -> i64| part(step) - usual(part);
        let own = [
            ("computing", longer(|step| step.partition.compute_ns)),
            ("copying", longer(|step| step.partition.exposed_copy_ns)),
            (IDLE, longer(|step| step.partition.idle_ns)),
        ];
        let waiting = longer(|step| step.partition.exposed_communication_ns);
        Longer { rank: step.rank, own, waiting, data: longer(|step| step.host_data_ns.unwrap_or(0)) }
    }

    fn own_ns(&self) -> i64 {
        self.own.iter().map(|(_, longer)| longer.max(&0)).sum()
    }

    fn largest(&self) -> (&'static str, i64) {
        self.own.iter().copied().max_by_key(|(_, longer)| *longer).unwrap_or((IDLE, 0))
    }
}

/// Why a step was slow, against the others of an analysis; none, if it is not among them or is alone. What the host does before
/// it launches anything is in the step before, on the device: where that one is the slow one, it is meant.
pub fn why_slow(analysis: &Analysis, step: Step) -> Option<SlowStepCause> {
    let steps = [Some(step), step.0.checked_sub(1).map(Step)];
    let slow = steps.into_iter().flatten().map(|step| (longer(analysis, step), step));
    let (ranks, _) = slow.max_by_key(|(ranks, _)| worst(ranks))?;
    let worst = worst(&ranks).filter(|worst| *worst > 0)?;
    let is_at_fault = |rank: &&Longer| rank.own_ns() as f64 >= LEAST_SHARE * worst as f64;
    let at_fault: Vec<&Longer> = ranks.iter().filter(is_at_fault).collect();
    let mut evidence = Vec::new();
    for rank in at_fault.iter().take(MOST_TOLD) {
        let (part, longer) = rank.largest();
        let why = if part == IDLE && 2 * rank.data >= longer { ", waiting for input data" } else { "" };
        evidence.push(format!("rank {} was {part} for {} longer than usual{why}", rank.rank, text::duration(longer)));
    }
    let waited: Vec<&Longer> =
        ranks.iter().filter(|rank| rank.waiting as f64 >= LEAST_SHARE * worst as f64 && !is_at_fault(rank)).collect();
    if let Some(longest) = waited.iter().map(|rank| rank.waiting).max() {
        let who: Vec<u32> = waited.iter().map(|rank| rank.rank.0).collect();
        let who = text::named_ranks(&who);
        let why = if at_fault.is_empty() { "in communication" } else { "for that, in communication" };
        evidence.push(format!("{who} waited {why}: up to {} longer than usual", text::duration(longest)));
    }
    let all_alike = at_fault.len() == ranks.len() && ranks.len() > 1;
    let ranks = if all_alike { Vec::new() } else { at_fault.iter().map(|rank| rank.rank).collect() };
    (!evidence.is_empty()).then_some(SlowStepCause { ranks, evidence })
}

/// By how much a step was longer than others on each rank that has it.
fn longer(analysis: &Analysis, step: Step) -> Vec<Longer> {
    let of_rank = |figures: &StepFigures| {
        let is_other =
            |other: &&StepFigures| other.rank == figures.rank && other.step != step && other.includes.is_empty();
        let others: Vec<&StepFigures> = analysis.steps.iter().filter(is_other).collect();
        (!others.is_empty()).then(|| Longer::of(figures, &others))
    };
    analysis.steps.iter().filter(|figures| figures.step == step).filter_map(of_rank).collect()
}

/// By how much it was on the worst of them.
fn worst(ranks: &[Longer]) -> Option<i64> {
    ranks.iter().map(|rank| rank.own_ns() + rank.waiting.max(0)).max()
}
