//! MFU: the model's FLOPs a second, as a share of what the devices could do.
//!
//! MFU = FLOPs of the model per token × tokens per second / (ranks × peak FLOP/s of a device). HFU counts the FLOPs
//! that are executed, what is computed again included. Without a peak there is neither.

use stepscope_plan::{Attention, Convention, ModelShape, ParallelLayout};
use stepscope_traces::RunInfo;

use crate::figures::{Mfu, StepTime};

/// What FLOPs and devices a run has.
pub(crate) struct Rates {
    model: Option<(ModelShape, ParallelLayout)>,
    peak_flops: Option<f64>,
    ranks: f64,
    convention: Convention,
}

impl Rates {
    pub(crate) fn of(run: &RunInfo, peak_flops: Option<f64>, ranks: usize, convention: Convention) -> Rates {
        // A world of no ranks is not this one.
        let ranks = run.world_size.filter(|size| *size > 0).map_or(ranks as f64, f64::from);
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
    pub(crate) fn overall(&self, step_time: Option<&StepTime>) -> Option<Mfu> {
        let (flops_per_token, peak_flops) = (self.flops_per_token(self.convention)?, self.peak_flops?);
        let tokens_per_second = step_time.and_then(|step_time| step_time.tokens_per_second);
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
        })
    }
}
