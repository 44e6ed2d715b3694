//! MFU: the model's FLOPs a second, as a share of what the devices could do.
//!
//! MFU = FLOPs of the model per token × tokens per second / (ranks × peak FLOP/s of a device). HFU counts the FLOPs
//! that are executed, what is computed again included. Without a peak there is neither.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::{Attention, Convention, ModelShape, ParallelLayout};
use stepscope_traces::{RunInfo, Step};

use crate::{rank::RankResult, selection::Selection};

/// MFU over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mfu {
    /// Which FLOPs count.
    pub convention: Convention,
    /// Of the model, by that convention.
    pub flops_per_token: f64,
    /// What a device computes at most.
    pub peak_flops: f64,
    /// Model FLOPs utilisation; none without tokens or steps.
    pub value: Option<f64>,
    /// Hardware FLOPs utilisation.
    pub hfu: Option<f64>,
    /// MFU by every convention.
    pub by_convention: BTreeMap<&'static str, f64>,
    /// Tokens a second of the whole job.
    pub tokens_per_second: Option<f64>,
    /// Steps that are left out, since a run warms up.
    pub warm_up_steps: Vec<Step>,
}

/// What FLOPs and devices a run has.
pub(crate) struct Rates {
    model: Option<(ModelShape, ParallelLayout)>,
    peak_flops: Option<f64>,
    ranks: f64,
    convention: Convention,
}

impl Rates {
    pub(crate) fn of(run: &RunInfo, peak_flops: Option<f64>, ranks: usize, convention: Convention) -> Rates {
        let ranks = run.world_size.map_or(ranks as f64, f64::from);
        let model = run.model.clone().zip(run.layout);
        Rates { model, peak_flops, ranks, convention }
    }

    /// A share of what all devices could do.
    fn utilisation(&self, flops_per_token: f64, tokens_per_second: f64) -> Option<f64> {
        Some(flops_per_token * tokens_per_second / (self.ranks * self.peak_flops?))
    }

    fn flops_per_token(&self, convention: Convention) -> Option<f64> {
        let (model, layout) = self.model.as_ref()?;
        Some(model.flops_per_token(convention, layout.sequence_length))
    }

    fn hardware_flops_per_token(&self) -> Option<f64> {
        let (model, layout) = self.model.as_ref()?;
        Some(model.hardware_flops_per_token(layout.recompute, Attention::Flash, layout.sequence_length))
    }

    /// MFU and HFU at a rate.
    pub(crate) fn at(&self, tokens_per_second: Option<f64>) -> (Option<f64>, Option<f64>) {
        let at = |flops: Option<f64>| self.utilisation(flops?, tokens_per_second?);
        (at(self.flops_per_token(self.convention)), at(self.hardware_flops_per_token()))
    }

    /// MFU of all steps but the first ones, over all ranks.
    pub(crate) fn overall(&self, ranks: &[RankResult], selection: &Selection) -> Option<Mfu> {
        let (flops_per_token, peak_flops) = (self.flops_per_token(self.convention)?, self.peak_flops?);
        let (tokens_per_second, warm_up_steps) = rate(ranks, selection);
        let (value, hfu) = self.at(tokens_per_second);
        let by_convention = Convention::ALL.into_iter().filter_map(|convention| {
            let value = self.utilisation(self.flops_per_token(convention)?, tokens_per_second?)?;
            Some((convention.name(), value))
        });
        Some(Mfu {
            convention: self.convention,
            flops_per_token,
            peak_flops,
            value,
            hfu,
            by_convention: by_convention.collect(),
            tokens_per_second,
            warm_up_steps,
        })
    }
}

/// Fewer steps than this are all counted.
const STEPS_WITH_WARM_UP: usize = 3;

/// Tokens a second of the whole job, and the steps that were left out: the first one, unless the steps were chosen or
/// there are few. A step takes as long as it does on the rank where it takes longest.
fn rate(ranks: &[RankResult], selection: &Selection) -> (Option<f64>, Vec<Step>) {
    let mut steps: BTreeMap<Step, (f64, i64)> = BTreeMap::new();
    for (window, partition, counters) in ranks.iter().flat_map(|rank| &rank.steps) {
        let (tokens, longest) = steps.entry(window.step).or_default();
        *tokens = tokens.max(counters.tokens.unwrap_or(0.0));
        *longest = partition.span_ns.max(*longest);
    }
    let warms_up = selection.steps == Default::default() && steps.len() >= STEPS_WITH_WARM_UP;
    let warm_up: Vec<Step> = steps.keys().copied().take(usize::from(warms_up)).collect();
    let counted = steps.iter().filter(|(step, _)| !warm_up.contains(step)).map(|(_, counted)| *counted);
    let (tokens, time) = counted.fold((0.0, 0), |(tokens, time), (more, longer)| (tokens + more, time + longer));
    ((tokens > 0.0 && time > 0).then(|| tokens / (time as f64 / 1e9)), warm_up)
}
