//! What a training run is told to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stepscope_plan::{ModelShape, ParallelLayout, Schedule};

use crate::{
    data::BYTE_VALUES, error::TrainError, model, numbers::Numbers, optimizer_settings::OptimizerSettings,
    rendezvous::Patience,
};

/// What a training run is told to do.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// The model.
    pub model: ModelShape,
    /// How it is spread over ranks.
    pub layout: ParallelLayout,
    /// What numbers it computes with.
    pub numbers: Numbers,
    /// The step after the last one.
    pub steps: u64,
    /// What initial weights and the order of the data follow from.
    pub seed: u64,
    /// How replicas reduce gradients.
    pub reduction: GradientReduction,
    /// Whether a GPU adds up in one order only, so that a run is the same to the last bit each time. The CPU always does.
    pub deterministic: bool,
    /// How weights are updated.
    pub optimizer: OptimizerSettings,
    /// The weight of the z-loss beside the cross-entropy: 0, if there is none.
    pub z_loss: f64,
    /// The weight of the balance loss of experts beside the cross-entropy: 0, if there is none.
    pub balance_loss: f64,
    /// Whether the gradient noise scale is measured.
    pub noise_scale: bool,
    /// After every so many steps, the loss of a part of the data that is not trained on.
    pub evaluate_every: Option<u64>,
    /// Files to train on; a built-in text, if there are none.
    pub data: Vec<PathBuf>,
    /// Where and how often checkpoints are written, if they are.
    pub save: Option<SaveEvery>,
    /// A checkpoint to go on from.
    pub resume: Option<PathBuf>,
    /// How long ranks that are processes wait for each other.
    pub patience: Patience,
}

/// When checkpoints are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveEvery {
    /// Save every this many steps.
    pub steps: u64,
    /// Under this directory.
    pub directory: PathBuf,
}

/// How replicas reduce gradients and gather parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GradientReduction {
    /// Unit by unit, beside the computation.
    #[default]
    Bucketed,
    /// At the end, while nothing is computed.
    Naive,
}

/// Micro-batches times chunks of a step, at most.
const MOST_WORK: u64 = 1 << 16;

/// The longest that ranks wait for each other: days.
const MOST_SECONDS: u64 = 1_000_000;

impl TrainConfig {
    /// A run of a model on a layout, with the usual settings.
    pub fn new(model: ModelShape, layout: ParallelLayout) -> TrainConfig {
        TrainConfig {
            numbers: Numbers::from(&layout),
            optimizer: OptimizerSettings::for_model(&model),
            model,
            layout,
            steps: 20,
            seed: 0,
            reduction: GradientReduction::default(),
            deterministic: false,
            z_loss: 0.0,
            balance_loss: 0.01,
            noise_scale: false,
            evaluate_every: None,
            data: Vec::new(),
            save: None,
            resume: None,
            patience: Patience::default(),
        }
    }

    /// Says what does not go together.
    pub fn check(&self) -> Result<(), TrainError> {
        let wrong = |why: String| Err(TrainError::Settings(why));
        if self.layout.schedule.is_dual() {
            let name = self.layout.schedule.name();
            return wrong(format!("--schedule {name} is planned and analyzed, not trained"));
        }
        self.layout.check(&self.model)?;
        model::check(&self.model)?;
        if self.model.vocabulary < BYTE_VALUES {
            return wrong(format!(
                "tokens are bytes, so the vocabulary needs at least {BYTE_VALUES} entries, not {}",
                self.model.vocabulary
            ));
        }
        let work = self.layout.micro_batches.saturating_mul(self.layout.chunks);
        if work > MOST_WORK {
            return wrong(format!("{work} passes per stage and step are too many; the maximum is {MOST_WORK}"));
        }
        if self.steps == 0 {
            return wrong("--steps must be at least 1".into());
        }
        if self.save.as_ref().is_some_and(|save| save.steps == 0) {
            return wrong("--save-every must be at least 1".into());
        }
        if self.evaluate_every == Some(0) {
            return wrong("--eval-every must be at least 1".into());
        }
        if let Some(every) = self.evaluate_every.filter(|every| *every > self.steps) {
            return wrong(format!("--eval-every {every} never comes in {} steps", self.steps));
        }
        if !(0.0..=1.0).contains(&self.z_loss) {
            return wrong("--z-loss must be between 0 and 1".into());
        }
        if !(0.0..=1.0).contains(&self.balance_loss) {
            return wrong("--balance-loss must be between 0 and 1".into());
        }
        self.check_noise_scale()?;
        let bounds = [self.patience.join, self.patience.collective].map(|bound| bound.as_secs());
        if !bounds.iter().all(|seconds| (1..=MOST_SECONDS).contains(seconds)) {
            return wrong(format!("--timeout must be between 1 and {MOST_SECONDS} seconds"));
        }
        self.optimizer.check(self.steps)
    }

    /// Says why the gradient noise scale cannot be measured, if it is to be: where the gradient of one micro-batch is whole nowhere.
    fn check_noise_scale(&self) -> Result<(), TrainError> {
        let ParallelLayout { dp, ep, pp, micro_batches, sequence_parallel, cp, schedule, .. } = self.layout;
        let why = [
            (dp * micro_batches < 2, "at least two micro-batches or replicas"),
            (cp > 1, "sequences that are not divided among ranks (no --cp)"),
            (ep > 1, "experts that are not shared (no --ep)"),
            (sequence_parallel, "gradients that are not divided by tokens (no --sequence-parallel)"),
            (
                schedule == Schedule::ZeroBubble,
                "a schedule that does not put gradients off (no --schedule zero-bubble)",
            ),
            (pp > 1 && self.model.tied_embeddings, "one stage, or embeddings that are not tied"),
        ];
        match why.into_iter().find(|(is_so, _)| self.noise_scale && *is_so) {
            Some((_, needed)) => Err(TrainError::Settings(format!("--noise-scale needs {needed}"))),
            None => Ok(()),
        }
    }

    /// What all ranks have to agree on, by name. Where checkpoints go is rank 0's to say.
    pub(crate) fn settings(&self) -> serde_json::Map<String, serde_json::Value> {
        let settings = serde_json::json!({
            "model": self.model,
            "layout": self.layout,
            "numbers": self.numbers,
            "steps": self.steps,
            "seed": self.seed,
            "reduction": self.reduction,
            "deterministic": self.deterministic,
            "optimizer": self.optimizer,
            "z_loss": self.z_loss,
            "balance_loss": self.balance_loss,
            "noise_scale": self.noise_scale,
            "evaluate_every": self.evaluate_every,
            "data": self.data,
            "save_every": self.save.as_ref().map(|save| save.steps),
            "resume": self.resume,
        });
        settings.as_object().cloned().unwrap_or_default()
    }
}
