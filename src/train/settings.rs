//! The settings of a training run, on the command line and in a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stepscope_plan::{ContextExchange, ModelShape, ParallelLayout, Precision, Recompute, Schedule, Zero};
use stepscope_trainer::{GradientReduction, LearningRateSchedule, OptimizerSettings, Patience, SaveEvery, TrainConfig};

use crate::words;

/// The default layout.
fn usual() -> ParallelLayout {
    ParallelLayout { micro_batch: 4, micro_batches: 4, sequence_length: 128, ..ParallelLayout::default() }
}
const USUAL_MODEL: &str = "tiny";

/// Settings of the command line and of a file.
#[derive(clap::Args, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Settings {
    #[arg(long, value_name = "NAME|FILE", help = format!("A preset, a Hugging Face config.json or a TOML file [default: {USUAL_MODEL}]"), help_heading = "Model and data")]
    model: Option<String>,
    /// The backend; auto uses NVIDIA GPUs if there are any [default: auto]
    #[arg(long, value_enum, overrides_with = "backend", help_heading = "Run")]
    pub(super) backend: Option<BackendName>,
    #[arg(long, value_name = "N", help = format!("Data-parallel replicas [default: {}]", usual().dp), help_heading = "Parallelism and memory")]
    dp: Option<u64>,
    #[arg(long, value_name = "N", help = format!("Tensor-parallel ranks [default: {}]", usual().tp), help_heading = "Parallelism and memory")]
    tp: Option<u64>,
    /// Share norms and what passes by them among tensor ranks, by tokens: less memory for activations.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, help_heading = "Parallelism and memory")]
    sequence_parallel: Option<bool>,
    #[arg(long, value_name = "N", help = format!("Context-parallel ranks, which each have a part of every sequence [default: {}]", usual().cp), help_heading = "Parallelism and memory")]
    cp: Option<u64>,
    #[arg(long, value_parser = words::context_exchange(), help = format!("How these get each other's keys and values [default: {}]", usual().context.name()), help_heading = "Parallelism and memory")]
    cp_exchange: Option<ContextExchange>,
    /// Replicas, or parts of sequences, that share the experts of a model that has them; N divides dp × cp [default: 1]
    #[arg(long, value_name = "N", help_heading = "Parallelism and memory")]
    ep: Option<u64>,
    #[arg(long, value_name = "N", help = format!("Pipeline stages [default: {}]", usual().pp), help_heading = "Parallelism and memory")]
    pp: Option<u64>,
    /// ZeRO stage: 1 shards optimizer state, 2 also gradients, 3 also parameters [default: 0]
    #[arg(long, value_parser = words::zero(), help_heading = "Parallelism and memory")]
    zero: Option<Zero>,
    /// Hybrid sharding (HSDP): N groups of replicas, each of which shares everything among its own [default: 1]
    #[arg(long, value_name = "N", help_heading = "Parallelism and memory")]
    dp_replicate: Option<u64>,
    #[arg(long, value_name = "N", help = format!("With ZeRO-3, units (layers, unless --unit-layers says more) whose parameters are gathered ahead of the one that computes [default: {}]", usual().prefetch), help_heading = "Parallelism and memory")]
    prefetch: Option<u64>,
    #[arg(long, value_name = "N", help = format!("Layers of a unit, which replicas gather, reduce and free at once [default: {}]", usual().unit_layers), help_heading = "Parallelism and memory")]
    unit_layers: Option<u64>,
    #[arg(long, value_parser = words::trained_schedule(), help = format!("Pipeline schedule [default: {}]", usual().schedule.name()), help_heading = "Parallelism and memory")]
    schedule: Option<Schedule>,
    #[arg(long, value_name = "N", help = format!("Model chunks per stage in an interleaved schedule [default: {}]", Schedule::Interleaved.fewest_chunks()), help_heading = "Parallelism and memory")]
    chunks: Option<u64>,
    #[arg(long, value_name = "B", help = format!("Sequences per micro-batch [default: {}]", usual().micro_batch), help_heading = "Model and data")]
    micro_batch: Option<u64>,
    #[arg(long, value_name = "M", help = format!("Micro-batches per step and replica [default: {}]", usual().micro_batches), help_heading = "Model and data")]
    micro_batches: Option<u64>,
    #[arg(long, value_name = "S", help = format!("Tokens per sequence [default: {}]", usual().sequence_length), help_heading = "Model and data")]
    seq_len: Option<u64>,
    #[arg(long, value_parser = words::recompute(), help = format!("Activation recomputation in the backward pass [default: {}]", usual().recompute.name()), help_heading = "Parallelism and memory")]
    recompute: Option<Recompute>,
    #[arg(long, value_parser = words::precision(), help = format!("Precision of parameters and activations [default: {}]", usual().precision.name()), help_heading = "Model and data")]
    precision: Option<Precision>,
    /// Precision of gradients [default: that of the parameters]
    #[arg(long, value_parser = words::precision(), help_heading = "Model and data")]
    grads: Option<Precision>,
    /// When replicas reduce gradients: during the backward pass, or after it [default: bucketed]
    #[arg(long, value_enum, help_heading = "Parallelism and memory")]
    reduction: Option<ReductionName>,
    /// Make results on a GPU reproducible to the last bit; slightly slower.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, help_heading = "Model and data")]
    deterministic: Option<bool>,
    /// Number of steps [default: 20]
    #[arg(long, value_name = "N", help_heading = "Model and data")]
    steps: Option<u64>,
    /// Seed of the initial weights and the data order [default: 0]
    #[arg(long, value_name = "K", help_heading = "Model and data")]
    seed: Option<u64>,
    /// Learning rate after warm-up [default: 0.001, and less for models of more than ten million parameters]
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    learning_rate: Option<f64>,
    /// What becomes of the learning rate after warm-up [default: constant]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Optimizer")]
    lr_schedule: Option<LrScheduleName>,
    /// Steps over which the learning rate rises [default: 20, or a fifth of the steps if it falls after that]
    #[arg(long, value_name = "N", help_heading = "Optimizer")]
    warm_up: Option<u64>,
    /// Scale gradients whose norm over all parameters is larger; 0 does not [default: 1]
    #[arg(long, value_name = "NORM", help_heading = "Optimizer")]
    clip: Option<f64>,
    /// Weight decay of matrices; norms have none [default: 0.1]
    #[arg(long, value_name = "SHARE", help_heading = "Optimizer")]
    weight_decay: Option<f64>,
    /// How long AdamW remembers gradients [default: 0.9]
    #[arg(long, value_name = "BETA", help_heading = "Optimizer")]
    beta1: Option<f64>,
    /// How long AdamW remembers their squares [default: 0.95]
    #[arg(long, value_name = "BETA", help_heading = "Optimizer")]
    beta2: Option<f64>,
    /// What AdamW adds to what it divides by [default: 1e-8]
    #[arg(long, value_name = "EPSILON", help_heading = "Optimizer")]
    eps: Option<f64>,
    /// Weight of the squared logarithm of the softmax's sum in the loss, such as 1e-4 [default: 0]
    #[arg(long, value_name = "WEIGHT", help_heading = "Optimizer")]
    z_loss: Option<f64>,
    /// Weight of the loss that has tokens choose experts equally often [default: 0.01]
    #[arg(long, value_name = "WEIGHT", help_heading = "Optimizer")]
    balance_loss: Option<f64>,
    /// Measure the gradient noise scale, from one micro-batch and all of them: about the critical batch size.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, help_heading = "Optimizer")]
    noise_scale: Option<bool>,
    /// Every N steps, evaluate the loss on the last tenth of each file, which is then not trained on.
    #[arg(long, value_name = "N", help_heading = "Model and data")]
    eval_every: Option<u64>,
    /// Files to train on, as bytes [default: a built-in text]
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Model and data")]
    data: Option<Vec<PathBuf>>,
    /// Write a checkpoint into the run directory every N steps.
    #[arg(long, value_name = "N", help_heading = "Run")]
    save_every: Option<u64>,
    /// Resume from a checkpoint, or from the newest one of a run.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    resume: Option<PathBuf>,
    /// Seconds that rank processes wait for each other to join, and in each collective [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    timeout: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BackendName {
    /// NVIDIA GPUs if there are any, else the CPU.
    Auto,
    /// The CPU cores of this machine.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

#[derive(Clone, Copy, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReductionName {
    /// Bucket by bucket, overlapping with the backward pass.
    Bucketed,
    /// All at once after it, for comparison.
    Naive,
}

#[derive(Clone, Copy, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LrScheduleName {
    /// It stays.
    Constant,
    /// It falls to a tenth, as a cosine does.
    Cosine,
    /// It falls to nothing in a line.
    Linear,
    /// It stays, and falls to nothing over the last fifth of the steps.
    Wsd,
}

impl Settings {
    /// These settings, completed by those of `other`.
    pub(super) fn or(self, other: Settings) -> Settings {
        Settings {
            model: self.model.or(other.model),
            backend: self.backend.or(other.backend),
            dp: self.dp.or(other.dp),
            tp: self.tp.or(other.tp),
            sequence_parallel: self.sequence_parallel.or(other.sequence_parallel),
            cp: self.cp.or(other.cp),
            cp_exchange: self.cp_exchange.or(other.cp_exchange),
            ep: self.ep.or(other.ep),
            pp: self.pp.or(other.pp),
            zero: self.zero.or(other.zero),
            dp_replicate: self.dp_replicate.or(other.dp_replicate),
            prefetch: self.prefetch.or(other.prefetch),
            unit_layers: self.unit_layers.or(other.unit_layers),
            schedule: self.schedule.or(other.schedule),
            chunks: self.chunks.or(other.chunks),
            micro_batch: self.micro_batch.or(other.micro_batch),
            micro_batches: self.micro_batches.or(other.micro_batches),
            seq_len: self.seq_len.or(other.seq_len),
            recompute: self.recompute.or(other.recompute),
            precision: self.precision.or(other.precision),
            grads: self.grads.or(other.grads),
            reduction: self.reduction.or(other.reduction),
            deterministic: self.deterministic.or(other.deterministic),
            steps: self.steps.or(other.steps),
            seed: self.seed.or(other.seed),
            learning_rate: self.learning_rate.or(other.learning_rate),
            lr_schedule: self.lr_schedule.or(other.lr_schedule),
            warm_up: self.warm_up.or(other.warm_up),
            clip: self.clip.or(other.clip),
            weight_decay: self.weight_decay.or(other.weight_decay),
            beta1: self.beta1.or(other.beta1),
            beta2: self.beta2.or(other.beta2),
            eps: self.eps.or(other.eps),
            z_loss: self.z_loss.or(other.z_loss),
            balance_loss: self.balance_loss.or(other.balance_loss),
            noise_scale: self.noise_scale.or(other.noise_scale),
            eval_every: self.eval_every.or(other.eval_every),
            data: self.data.or(other.data),
            save_every: self.save_every.or(other.save_every),
            resume: self.resume.or(other.resume),
            timeout: self.timeout.or(other.timeout),
        }
    }

    fn layout(&self) -> ParallelLayout {
        let usual = usual();
        let schedule = self.schedule.unwrap_or(usual.schedule);
        let usual_chunks = schedule.fewest_chunks();
        let precision = self.precision.unwrap_or(usual.precision);
        ParallelLayout {
            dp: self.dp.unwrap_or(usual.dp),
            tp: self.tp.unwrap_or(usual.tp),
            sequence_parallel: self.sequence_parallel.unwrap_or(usual.sequence_parallel),
            cp: self.cp.unwrap_or(usual.cp),
            context: self.cp_exchange.unwrap_or(usual.context),
            ep: self.ep.unwrap_or(usual.ep),
            pp: self.pp.unwrap_or(usual.pp),
            zero: self.zero.unwrap_or(usual.zero),
            dp_replicate: self.dp_replicate.unwrap_or(usual.dp_replicate),
            prefetch: self.prefetch.unwrap_or(usual.prefetch),
            unit_layers: self.unit_layers.unwrap_or(usual.unit_layers),
            schedule,
            chunks: self.chunks.unwrap_or(usual_chunks),
            micro_batch: self.micro_batch.unwrap_or(usual.micro_batch),
            micro_batches: self.micro_batches.unwrap_or(usual.micro_batches),
            sequence_length: self.seq_len.unwrap_or(usual.sequence_length),
            recompute: self.recompute.unwrap_or(usual.recompute),
            precision,
            gradients: self.grads.unwrap_or(precision),
        }
    }

    fn optimizer(&self, usual: OptimizerSettings, steps: u64) -> OptimizerSettings {
        let schedule = match self.lr_schedule {
            None => usual.schedule,
            Some(LrScheduleName::Constant) => LearningRateSchedule::Constant,
            Some(LrScheduleName::Cosine) => LearningRateSchedule::Cosine,
            Some(LrScheduleName::Linear) => LearningRateSchedule::Linear,
            Some(LrScheduleName::Wsd) => LearningRateSchedule::Wsd,
        };
        // A rate that falls needs steps to fall in.
        let usual_warm_up = match schedule {
            LearningRateSchedule::Constant => usual.warm_up,
            _ => usual.warm_up.min(steps / 5),
        };
        let [beta1, beta2] = usual.betas;
        OptimizerSettings {
            learning_rate: self.learning_rate.unwrap_or(usual.learning_rate),
            schedule,
            warm_up: self.warm_up.unwrap_or(usual_warm_up),
            betas: [self.beta1.unwrap_or(beta1), self.beta2.unwrap_or(beta2)],
            epsilon: self.eps.unwrap_or(usual.epsilon),
            weight_decay: self.weight_decay.unwrap_or(usual.weight_decay),
            clip: self.clip.or(usual.clip).filter(|clip| *clip != 0.0),
        }
    }

    /// Says which settings would do nothing.
    fn check_use(&self, config: &TrainConfig) -> Result<()> {
        let ParallelLayout { cp, zero, .. } = config.layout;
        let has_units = config.layout.replicas() > 1;
        let is_naive = matches!(self.reduction, Some(ReductionName::Naive));
        let idle = [
            (self.prefetch.is_some() && zero != Zero::Three, "--prefetch needs --zero 3"),
            (self.unit_layers.is_some() && !has_units, "--unit-layers needs --dp or --cp"),
            (
                self.unit_layers.is_some() && is_naive && zero == Zero::Off,
                "--unit-layers needs --zero or --reduction bucketed",
            ),
            (self.cp_exchange.is_some() && cp == 1, "--cp-exchange needs --cp"),
            (
                self.balance_loss.is_some() && config.model.experts.is_none(),
                "--balance-loss needs a model with experts",
            ),
        ];
        match idle.into_iter().find(|(is_idle, _)| *is_idle) {
            Some((_, needed)) => bail!("{needed}"),
            None => Ok(()),
        }
    }

    /// What to do; checkpoints go into a run that is known later.
    pub(super) fn config(&self) -> Result<TrainConfig> {
        let model = ModelShape::load(self.model.as_deref().unwrap_or(USUAL_MODEL))?;
        let usual = TrainConfig::new(model, self.layout());
        self.check_use(&usual)?;
        let reduction = match self.reduction {
            None => usual.reduction,
            Some(ReductionName::Bucketed) => GradientReduction::Bucketed,
            Some(ReductionName::Naive) => GradientReduction::Naive,
        };
        Ok(TrainConfig {
            steps: self.steps.unwrap_or(usual.steps),
            seed: self.seed.unwrap_or(usual.seed),
            deterministic: self.deterministic.unwrap_or(usual.deterministic),
            optimizer: self.optimizer(usual.optimizer, self.steps.unwrap_or(usual.steps)),
            z_loss: self.z_loss.unwrap_or(usual.z_loss),
            balance_loss: self.balance_loss.unwrap_or(usual.balance_loss),
            noise_scale: self.noise_scale.unwrap_or(usual.noise_scale),
            evaluate_every: self.eval_every,
            data: self.data.clone().unwrap_or_default(),
            save: self.save_every.map(|steps| SaveEvery { steps, directory: "checkpoints".into() }),
            resume: self.resume.clone(),
            patience: self.timeout.map_or(usual.patience, |seconds| Patience::of(Duration::from_secs(seconds))),
            reduction,
            ..usual
        })
    }
}

/// Reads the settings of a file.
pub(super) fn read(file: &Path) -> Result<Settings> {
    read_as(file)
}

/// Reads a file of settings that may contain other keys.
pub(super) fn read_table(file: &Path) -> Result<toml::Table> {
    read_as(file)
}

fn read_as<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = read_small(file).map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
    toml::from_str(&text).map_err(|error| anyhow!("cannot parse {}: {}", file.display(), error))
}

/// Reads a small regular file.
fn read_small(file: &Path) -> io::Result<String> {
    const MOST: u64 = 1 << 20;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MOST {
        return Err(io::Error::other("it is not a regular file of at most 1 MB"));
    }
    fs::read_to_string(file)
}
