//! One step of the whole job: what its ranks come to together.

use std::collections::BTreeMap;

use stepscope_traces::{Phase, Rank, Step};

use super::{partition::Partition, steps::StepFigures};
use crate::stored::fields;

/// One step of the whole job.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// Which step.
    pub step: Step,
    /// How many ranks are known to have made it.
    pub ranks: u32,
    /// How long it takes on the rank where it takes longest.
    pub duration_ns: i64,
    /// Which rank that is.
    pub slowest: Rank,
    /// Where the time of all its ranks goes, added up.
    pub all_ranks: Partition,
    /// The loss that was recorded for it; the last rank's that recorded one, since that may be the last stage.
    pub loss: Option<f64>,
    /// The loss on data that was not trained on, after it; the last rank's that recorded one.
    pub evaluation_loss: Option<f64>,
    /// The gradient noise scale after it, in tokens; the last rank's that knows one.
    pub gradient_noise_scale: Option<f64>,
    /// Tokens of the whole job.
    pub tokens: Option<f64>,
    /// Those, in its time.
    pub tokens_per_second: Option<f64>,
    /// Model FLOP/s, as a share of what all devices could do.
    pub mfu: Option<f64>,
    /// What it includes on some rank besides training: evaluation, saving a checkpoint.
    pub includes: Vec<Phase>,
}

fields!(StepSummary {
    step,
    ranks,
    duration_ns,
    slowest,
    all_ranks,
    loss,
    evaluation_loss,
    gradient_noise_scale,
    tokens,
    tokens_per_second,
    mfu,
    includes,
});

impl StepSummary {
    /// One of a rank alone.
    pub fn of(step: &StepFigures) -> StepSummary {
        StepSummary {
            step: step.step,
            ranks: 1,
            duration_ns: step.duration_ns,
            slowest: step.rank,
            all_ranks: step.partition,
            loss: step.loss,
            evaluation_loss: step.evaluation_loss,
            gradient_noise_scale: step.gradient_noise_scale,
            tokens: step.tokens,
            tokens_per_second: step.tokens_per_second,
            mfu: step.mfu,
            includes: step.includes.clone(),
        }
    }

    /// Adds what a rank made of a step to what others did, which come before it.
    pub(crate) fn add_to(steps: &mut BTreeMap<Step, StepSummary>, figures: &StepFigures) {
        match steps.get_mut(&figures.step) {
            Some(summary) => summary.add(figures),
            None => _ = steps.insert(figures.step, StepSummary::of(figures)),
        }
    }

    /// Adds what another rank made of it.
    fn add(&mut self, step: &StepFigures) {
        self.ranks += 1;
        self.all_ranks.add_window(&step.partition);
        self.loss = step.loss.or(self.loss);
        self.evaluation_loss = step.evaluation_loss.or(self.evaluation_loss);
        self.gradient_noise_scale = step.gradient_noise_scale.or(self.gradient_noise_scale);
        let others = step.includes.iter().filter(|phase| !self.includes.contains(phase));
        let others: Vec<Phase> = others.copied().collect();
        self.includes.extend(others);
        self.tokens = step.tokens.or(self.tokens);
        if step.duration_ns > self.duration_ns {
            (self.duration_ns, self.slowest) = (step.duration_ns, step.rank);
            self.tokens_per_second = step.tokens_per_second.or(self.tokens_per_second);
            self.mfu = step.mfu.or(self.mfu);
        }
    }
}
