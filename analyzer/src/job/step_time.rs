//! How long a step of the whole job takes, and how much it trains on in that time.
//!
//! A step takes as long as it does on the rank where it takes longest. A run warms up: its first step is left out,
//! unless the steps were chosen or there are few.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::Step;

use crate::{figures::StepTime, rank::result::RankResult, selection::Selection};

/// Fewer steps than this are all counted.
const STEPS_WITH_WARM_UP: usize = 3;

/// The time of some ranks' steps; none without steps.
pub(crate) fn step_time(ranks: &[RankResult], selection: &Selection) -> Option<StepTime> {
    let mut steps: BTreeMap<Step, (f64, i64)> = BTreeMap::new();
    let mut cut_off = BTreeSet::new();
    for (window, partition, counters) in ranks.iter().flat_map(|rank| &rank.steps) {
        let (tokens, longest) = steps.entry(window.step).or_default();
        *tokens = tokens.max(counters.tokens.unwrap_or(0.0));
        *longest = partition.span_ns.max(*longest);
        if !counters.finished {
            cut_off.insert(window.step);
        }
    }
    // Where there is nothing else, they are what there is.
    if cut_off.len() < steps.len() {
        steps.retain(|step, _| !cut_off.contains(step));
    } else {
        cut_off.clear();
    }
    let warms_up = selection.steps == Default::default() && steps.len() >= STEPS_WITH_WARM_UP;
    let warm_up_steps: Vec<Step> = steps.keys().copied().take(usize::from(warms_up)).collect();
    steps.retain(|step, _| !warm_up_steps.contains(step));
    let (tokens, time) = steps.values().fold((0.0, 0), |(tokens, time), (more, longer)| (tokens + more, time + longer));
    let mut times: Vec<(i64, Step)> = steps.iter().map(|(step, (_, longest))| (*longest, *step)).collect();
    times.sort_unstable();
    // The smallest that is at least as large as this many hundredths of all.
    let at = |hundredths: usize| times.get((times.len() * hundredths).div_ceil(100).saturating_sub(1)).copied();
    let (median_ns, median_step) = at(50)?;
    Some(StepTime {
        first_step: *steps.first_key_value()?.0,
        last_step: *steps.last_key_value()?.0,
        count: steps.len() as u64,
        warm_up_steps,
        cut_off_steps: cut_off.into_iter().collect(),
        median_ns,
        median_step,
        low_ns: at(10)?.0,
        high_ns: at(90)?.0,
        tokens_per_second: (tokens > 0.0 && time > 0).then(|| tokens / (time as f64 / 1e9)),
        inferred: ranks.iter().any(|rank| rank.steps_are_inferred && !rank.steps.is_empty()),
    })
}
