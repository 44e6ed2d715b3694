//! How many tokens the whole job trains on in a step.
//!
//! For users, it is defined in `docs/src/metrics.md#mfu-and-hfu`.
//!
//! A program may say so, or whoever asks. Else ranks may know how many tokens their own replica of the model trained on: all
//! ranks of a replica see the same ones, and a stage that neither embeds tokens nor computes a loss sees none. The job's are
//! those of a replica, in the mean of the ranks that know, times the number of replicas.

use std::collections::BTreeMap;

use stepscope_traces::Step;

use crate::{figures::RunLayout, rank::result::RankResult};

/// How many replicas of the model there are, if that is known: parts of a sequence are trained on as other sequences are.
pub(crate) fn replicas(layout: Option<&RunLayout>, computing: usize) -> Option<u64> {
    layout.map(|layout| layout.dp * layout.cp).or((computing == 1).then_some(1))
}

/// Says the tokens of the job in each step of each rank where nobody else does.
pub(crate) fn tell_tokens(ranks: &mut [RankResult], replicas: Option<u64>, given: Option<f64>) {
    let mut known: BTreeMap<Step, (f64, u32)> = BTreeMap::new();
    let mut is_said = false;
    for (window, _, counters) in ranks.iter().flat_map(|rank| &rank.steps) {
        is_said |= counters.tokens.is_some();
        if let Some(tokens) = counters.replica_tokens {
            let (sum, count) = known.entry(window.step).or_default();
            *sum += tokens;
            *count += 1;
        }
    }
    let of_job = |step: Step| {
        let (sum, count) = known.get(&step)?;
        Some(sum / f64::from(*count) * replicas? as f64)
    };
    for (window, _, counters) in ranks.iter_mut().flat_map(|rank| &mut rank.steps) {
        if given.is_some() && counters.is_complete {
            counters.tokens = given;
        } else if !is_said {
            counters.tokens = of_job(window.step);
        }
    }
}
