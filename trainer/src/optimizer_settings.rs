//! How weights are updated: AdamW, with a learning rate that changes from step to step.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use stepscope_plan::ModelShape;

use crate::{backend::AdamW, error::TrainError};

/// How weights are updated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerSettings {
    /// How far a step goes at most.
    pub learning_rate: f64,
    /// What becomes of that after warm-up.
    pub schedule: LearningRateSchedule,
    /// Steps over which the learning rate rises.
    pub warm_up: u64,
    /// Memory of the mean and of the square.
    pub betas: [f64; 2],
    /// Keeps the division finite.
    pub epsilon: f64,
    /// How fast matrices shrink; norms do not.
    pub weight_decay: f64,
    /// The longest a gradient may be, over all parameters; longer ones are scaled.
    pub clip: Option<f64>,
}

/// What becomes of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// It stays, so that a run can be made longer.
    #[default]
    Constant,
    /// It falls to a tenth, as a cosine does.
    Cosine,
    /// It falls to nothing in a line.
    Linear,
    /// It stays, and falls to nothing in a line over the last fifth of the steps: warm-up, stable, decay.
    Wsd,
}

/// What a cosine leaves of the learning rate.
const COSINE_REST: f64 = 0.1;
/// Of all steps, those over which a stable rate decays.
const DECAY: f64 = 0.2;

impl LearningRateSchedule {
    /// The share of the learning rate at a step, of those after warm-up, `progress` of which are done.
    fn share(self, progress: f64) -> f64 {
        match self {
            LearningRateSchedule::Constant => 1.0,
            LearningRateSchedule::Cosine => COSINE_REST + (1.0 - COSINE_REST) * (1.0 + (PI * progress).cos()) / 2.0,
            LearningRateSchedule::Linear => 1.0 - progress,
            LearningRateSchedule::Wsd => ((1.0 - progress) / DECAY).min(1.0),
        }
    }
}

impl OptimizerSettings {
    /// The usual settings for a model. Larger ones take smaller steps: the rule of Kaplan et al. (2020, equation D.1),
    /// within what small and very large ones use.
    pub fn for_model(model: &ModelShape) -> OptimizerSettings {
        let by_size = 3.239e-3 - 1.395e-4 * (model.parameters() as f64).ln();
        OptimizerSettings {
            learning_rate: by_size.clamp(3e-5, 1e-3),
            schedule: LearningRateSchedule::default(),
            warm_up: 20,
            betas: [0.9, 0.95],
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip: Some(1.0),
        }
    }

    /// Says what is wrong, for so many steps.
    pub(crate) fn check(&self, steps: u64) -> Result<(), TrainError> {
        let OptimizerSettings { learning_rate, schedule, warm_up, betas, epsilon, weight_decay, clip } = *self;
        let wrong = |why: String| Err(TrainError::Settings(why));
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        if !is_positive(learning_rate) {
            return wrong(format!("the learning rate must be positive, not {learning_rate}"));
        }
        if schedule != LearningRateSchedule::Constant && warm_up >= steps {
            return wrong(format!("--warm-up {warm_up} leaves no step of {steps} in which the learning rate falls"));
        }
        if let Some((name, beta)) =
            ["beta1", "beta2"].into_iter().zip(betas).find(|(_, beta)| !(0.0..1.0).contains(beta))
        {
            return wrong(format!("--{name} must be at least 0 and less than 1, not {beta}"));
        }
        // It is added in fp32.
        if !(epsilon.is_finite() && epsilon as f32 > 0.0) {
            return wrong(format!("--eps must be positive in fp32 and finite, not {epsilon:e}"));
        }
        if !(weight_decay.is_finite() && weight_decay >= 0.0) {
            return wrong(format!("the weight decay must be at least 0, not {weight_decay}"));
        }
        match clip {
            Some(clip) if !is_positive(clip) => wrong(format!("--clip must be at least 0 and finite, not {clip}")),
            _ => Ok(()),
        }
    }

    /// What differs in another, by name: here, and there.
    pub fn differences(&self, other: &OptimizerSettings) -> Vec<String> {
        let clip = |settings: &OptimizerSettings| settings.clip.unwrap_or(0.0).to_string();
        let number = |name, of: fn(&OptimizerSettings) -> f64| (name, of(self).to_string(), of(other).to_string());
        let pairs = [
            number("learning rate", |settings| settings.learning_rate),
            ("schedule", format!("{:?}", self.schedule).to_lowercase(), format!("{:?}", other.schedule).to_lowercase()),
            number("warm-up", |settings| settings.warm_up as f64),
            number("beta1", |settings| settings.betas[0]),
            number("beta2", |settings| settings.betas[1]),
            number("eps", |settings| settings.epsilon),
            number("weight decay", |settings| settings.weight_decay),
            ("clip", clip(self), clip(other)),
        ];
        pairs
            .into_iter()
            .filter(|(_, one, two)| one != two)
            .map(|(name, one, two)| format!("{name} {one} → {two}"))
            .collect()
    }

    /// What a step is taken with, from 0, of so many.
    pub(crate) fn at(&self, step: u64, steps: u64) -> AdamW {
        let warm = ((step + 1) as f64 / self.warm_up.max(1) as f64).min(1.0);
        let after = (step + 1).saturating_sub(self.warm_up);
        let progress = after as f64 / steps.saturating_sub(self.warm_up).max(1) as f64;
        AdamW {
            learning_rate: self.learning_rate * warm * self.schedule.share(progress.min(1.0)),
            beta1: self.betas[0],
            beta2: self.betas[1],
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            clip: self.clip,
            step: step + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(schedule: LearningRateSchedule) -> OptimizerSettings {
        let usual = OptimizerSettings::for_model(&ModelShape::preset("tiny").unwrap());
        OptimizerSettings { learning_rate: 1.0, schedule, warm_up: 4, ..usual }
    }

    #[test]
    fn the_rate_rises_and_then_follows_its_schedule() {
        let rates = |schedule| [0, 3, 13, 19, 22, 23].map(|step| settings(schedule).at(step, 24).learning_rate);
        let close = |rates: [f64; 6], expected: [f64; 6]| {
            assert!(rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-9), "{rates:?}");
        };
        close(rates(LearningRateSchedule::Constant), [0.25, 1.0, 1.0, 1.0, 1.0, 1.0]);
        close(rates(LearningRateSchedule::Linear), [0.25, 1.0, 0.5, 0.2, 0.05, 0.0]);
        close(rates(LearningRateSchedule::Wsd), [0.25, 1.0, 1.0, 1.0, 0.25, 0.0]);
        let cosine = |progress: f64| 0.55 + 0.45 * (PI * progress).cos();
        close(rates(LearningRateSchedule::Cosine), [0.25, 1.0, cosine(0.5), cosine(0.8), cosine(0.95), 0.1]);
        let usual = OptimizerSettings { warm_up: 0, ..settings(LearningRateSchedule::Constant) };
        assert_eq!(usual.at(0, 1).learning_rate, 1.0, "without warm-up");
    }

    #[test]
    fn larger_models_take_smaller_steps() {
        let rate = |name| OptimizerSettings::for_model(&ModelShape::preset(name).unwrap()).learning_rate;
        assert_eq!(rate("tiny"), 1e-3);
        assert!((2e-4..4e-4).contains(&rate("llama-1b")), "{}", rate("llama-1b"));
        assert!((4e-5..8e-5).contains(&rate("llama-8b")), "{}", rate("llama-8b"));
        assert_eq!(rate("llama-405b"), 3e-5);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let base = settings(LearningRateSchedule::Constant);
        for (settings, why) in [
            (OptimizerSettings { learning_rate: f64::NAN, ..base }, "learning rate must be positive"),
            (OptimizerSettings { betas: [0.9, 1.0], ..base }, "--beta2 must be at least 0 and less than 1, not 1"),
            (OptimizerSettings { epsilon: 0.0, ..base }, "--eps must be positive"),
            (OptimizerSettings { epsilon: 1e-50, ..base }, "--eps must be positive in fp32"),
            (settings(LearningRateSchedule::Wsd), "--warm-up 4 leaves no step of 4"),
            (OptimizerSettings { weight_decay: -0.1, ..base }, "weight decay must be at least 0"),
            (OptimizerSettings { clip: Some(-1.0), ..base }, "--clip must be at least 0"),
        ] {
            let error = settings.check(4).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(settings(LearningRateSchedule::Wsd).check(5).is_ok() && base.check(4).is_ok());
    }

    #[test]
    fn what_differs_is_named() {
        let base = settings(LearningRateSchedule::Constant);
        assert!(base.differences(&base).is_empty());
        let other = OptimizerSettings { clip: None, schedule: LearningRateSchedule::Wsd, ..base };
        assert_eq!(base.differences(&other), ["schedule constant → wsd", "clip 1 → 0"]);
    }
}
