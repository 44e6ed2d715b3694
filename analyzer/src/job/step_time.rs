//! How long a step of the whole job takes, and how much it trains on in that time.
//!
//! A step takes as long as it does on the rank where it takes longest. Tokens a second are those of all steps that count in
//! the time of those; where the whole recording counts, in its time on the rank where it is longest.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::Step;

use super::unseen::seen;
use crate::{
    figures::{CountedSteps, StepTime},
    rank::{
        counted_steps::{RecordedStep, counted_steps},
        result::RankResult,
    },
    selection::StepChoice,
};

/// Which steps of a job count: a step is complete if it is on every rank that has it.
pub(crate) fn counted_of_job(ranks: &[RankResult], choice: StepChoice) -> CountedSteps {
    let mut steps: BTreeMap<Step, RecordedStep> = BTreeMap::new();
    for (window, partition, counters) in seen(ranks).flat_map(|rank| &rank.steps) {
        let recorded = RecordedStep { step: window.step, span_ns: 0, is_complete: true };
        let recorded = steps.entry(window.step).or_insert(recorded);
        recorded.span_ns = partition.span_ns.max(recorded.span_ns);
        recorded.is_complete &= counters.is_complete;
    }
    counted_steps(&steps.into_values().collect::<Vec<_>>(), choice)
}

/// The time of the steps that count; none without steps.
pub(crate) fn step_time(ranks: &[RankResult], counted: &CountedSteps) -> Option<StepTime> {
    let mut steps: BTreeMap<Step, (f64, i64)> = BTreeMap::new();
    let mut not_only_training: BTreeSet<Step> = BTreeSet::new();
    let counts = |step: Step| counted.counts(step);
    for (window, partition, counters) in ranks.iter().flat_map(|rank| &rank.steps).filter(|step| counts(step.0.step)) {
        let (tokens, longest) = steps.entry(window.step).or_default();
        *tokens = tokens.max(counters.tokens.unwrap_or(0.0));
        *longest = partition.span_ns.max(*longest);
        if !counters.besides.phases().is_empty() {
            not_only_training.insert(window.step);
        }
    }
    let add = |(tokens, time): (f64, i64), (_, (more, longer)): (&Step, &(f64, i64))| (tokens + more, time + longer);
    let per_second = |(tokens, time): (f64, i64)| (tokens > 0.0 && time > 0).then(|| tokens / (time as f64 / 1e9));
    let (tokens, time) = steps.iter().fold((0.0, 0), add);
    let only_training = steps.iter().filter(|(step, _)| !not_only_training.contains(step)).fold((0.0, 0), add);
    // Of the whole recording, what lies between steps takes time too.
    let whole = ranks.iter().map(|rank| rank.time.partition.span_ns).max().unwrap_or(0);
    let time = if counted.whole { whole } else { time };
    let mut times: Vec<(i64, Step)> = steps.iter().map(|(step, (_, longest))| (*longest, *step)).collect();
    times.sort_unstable();
    // The smallest that is at least as large as this many hundredths of all.
    let at = |hundredths: usize| times.get((times.len() * hundredths).div_ceil(100).saturating_sub(1)).copied();
    let (median_ns, median_step) = at(50)?;
    Some(StepTime {
        first_step: *steps.first_key_value()?.0,
        last_step: *steps.last_key_value()?.0,
        count: steps.len() as u64,
        median_ns,
        median_step,
        low_ns: at(10)?.0,
        high_ns: at(90)?.0,
        tokens_per_second: per_second((tokens, time)),
        training_tokens_per_second: per_second(only_training).filter(|_| !not_only_training.is_empty()),
        inferred: ranks.iter().any(|rank| rank.steps_are_inferred && !rank.steps.is_empty()),
    })
}
