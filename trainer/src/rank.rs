//! What one rank does, whatever it runs on: a function over a backend, a communicator and a recorder.

#[cfg(test)]
mod gradient_check;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use stepscope_plan::{Coordinates, Placement, Zero};
use stepscope_traces::{Counter, EVALUATION_LOSS, NOISE_SCALE, Phase, Rank, Stage as StageNumber, Step, expert_tokens};

use crate::{
    backend::Stream,
    checkpoint,
    comm::{Groups, Reduction},
    config::{GradientReduction, TrainConfig},
    data::{Dataset, Use},
    error::TrainError,
    model::{Batch, Engine, Sizes, Stage, initial},
    noise_scale::{Measured, NoiseScale},
    parallel::{
        context::ContextParallel, data::Replicas, expert::ExpertParallel, pipeline::Pipeline, tensor::TensorParallel,
    },
    parts::RankParts,
    state::State,
};

/// A step that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Which step, from 0.
    pub step: u64,
    /// The mean loss of its tokens, over all ranks.
    pub loss: f64,
    /// The norm of the whole gradient.
    pub gradient_norm: f64,
    /// Tokens of all ranks.
    pub tokens: u64,
    /// How long it took.
    pub duration: Duration,
    /// The gradient noise scale so far, in tokens, where it is measured: about the critical batch size.
    pub noise_scale: Option<f64>,
    /// The mean loss of data that is not trained on, where it was looked at after the step.
    pub evaluation_loss: Option<f64>,
}

/// One rank of a training run, between steps.
pub struct TrainingRank {
    config: TrainConfig,
    at: Coordinates,
    parts: RankParts,
    groups: Groups,
    state: State,
    stage: Stage,
    pipeline: Pipeline,
    noise_scale: NoiseScale,
    next_step: u64,
}

impl TrainingRank {
    /// Takes memory and makes the initial weights, or reads those of the checkpoint to go on from.
    pub fn new(config: &TrainConfig, rank: Rank, parts: RankParts) -> Result<TrainingRank, TrainError> {
        config.check()?;
        let (config, layout) = (config.clone(), config.layout);
        let at = layout.coordinates(rank.0.into());
        let groups = Groups::of(&layout, rank);
        let RankParts { backend, communicator, recorder } = parts.clone();
        let _stage = recorder.stage(StageNumber(at.stage as i16));
        let placement = Placement::of(&config.model, &layout, at);
        let engine = Engine {
            backend: backend.clone(),
            recorder: recorder.clone(),
            tensor: TensorParallel::new(communicator.clone(), groups.tensor.clone(), layout.sequence_parallel),
            context: ContextParallel::new(backend.clone(), communicator.clone(), groups.context.clone(), &layout),
            expert: ExpertParallel {
                backend: backend.clone(),
                communicator: communicator.clone(),
                group: groups.expert.clone(),
            },
            numbers: config.numbers,
            sizes: Sizes::of(&config.model, &layout, config.balance_loss),
        };
        let overlap = config.reduction == GradientReduction::Bucketed;
        let (of, group, copies) = (communicator.clone(), groups.data.clone(), groups.replicate.clone());
        let replicas =
            Replicas { backend: backend.clone(), communicator: of, recorder: recorder.clone(), group, copies, overlap };
        let of_experts = Placement::of_experts(&config.model, &layout, at);
        let stage = Stage::new(engine, (&placement, &of_experts), &layout, config.z_loss, config.noise_scale);
        let ends = groups.ends.clone().filter(|_| config.model.tied_embeddings);
        let first_weights = |slot: &_, weights: &mut [f32]| initial(slot, config.model.layers, config.seed, weights);
        let sharing_rows = groups.tensor.clone().filter(|_| layout.sequence_parallel);
        let counts = (at, stage.totals.small_squares.clone());
        let of_same_experts = replicas.of_experts(groups.expert_data.clone());
        let (zero, numbers) = ((layout.zero, layout.prefetch), config.numbers);
        let mut state =
            State::new(placement, replicas, zero, numbers, counts.clone(), (ends, sharing_rows), first_weights)?;
        if !of_experts.units.is_empty() {
            let none = (None, None);
            // What a group of replicas has once, none of them shares.
            let zero = if layout.expert_replicas() > 1 { zero } else { (Zero::Off, layout.prefetch) };
            let experts = State::new(of_experts, of_same_experts, zero, numbers, counts, none, first_weights)?;
            state.experts = Some(Box::new(experts));
        }
        let mut next_step = 0;
        if let Some(path) = &config.resume {
            let _phase = recorder.phase(Phase::Checkpoint);
            next_step = checkpoint::restore(path, &config, at, &state)?;
        }
        backend.synchronize()?;
        let pipes = groups.forward.clone().zip(groups.backward.clone());
        let of = (config.model.clone(), layout);
        let pipeline = Pipeline::new((backend, communicator, recorder.clone()), of, at.stage, pipes);
        let noise_scale = NoiseScale::default();
        Ok(TrainingRank { config, at, parts, groups, state, stage, pipeline, noise_scale, next_step })
    }

    /// The step that comes next.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Takes one step.
    pub fn step(&mut self, data: &Dataset) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let (step, layout) = (self.next_step, self.config.layout);
        let recorder = self.parts.recorder.clone();
        let _stage = recorder.stage(StageNumber(self.at.stage as i16));
        let step_scope = recorder.step(Step(step as i32));
        self.accumulate(data)?;
        let optimizer = self.config.optimizer.at(step, self.config.steps);
        let Means { loss, gradient_norm, noise_scale } = {
            let _phase = recorder.phase(Phase::Optimizer);
            self.state.finish_gradients();
            self.state.add_squares(&self.stage.totals.squares);
            self.sum_totals();
            self.state.update(optimizer, &self.stage.totals.squares);
            self.totals()?
        };
        self.next_step += 1;
        // Of what is told of the step, evaluation and saving are no part.
        let duration = began.elapsed();
        let is_due = self.config.evaluate_every.is_some_and(|steps| self.next_step.is_multiple_of(steps));
        let evaluation_loss = if is_due && loss.is_finite() { Some(self.evaluate(data)?) } else { None };
        drop(step_scope);
        recorder.count(Counter::Loss, loss);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step, what: "loss", value: loss });
        }
        // Of what it makes of the weights, the next loss tells; after the last step nothing would.
        if !gradient_norm.is_finite() && self.next_step == self.config.steps {
            return Err(TrainError::Diverged { step, what: "gradient norm", value: gradient_norm });
        }
        recorder.count(Counter::GradientNorm, gradient_norm);
        recorder.count(Counter::Tokens, layout.tokens_per_step() as f64);
        self.count("learning_rate", Some(optimizer.learning_rate));
        self.count(NOISE_SCALE, noise_scale);
        self.count(EVALUATION_LOSS, evaluation_loss);
        self.count_expert_tokens();
        let tokens = layout.tokens_per_step();
        let report = StepReport { step, loss, gradient_norm, tokens, duration, noise_scale, evaluation_loss };
        if let Some(save) = self.config.save.clone().filter(|save| self.next_step.is_multiple_of(save.steps)) {
            self.save(&save.directory)?;
        }
        Ok(report)
    }

    /// Records a value, if there is one.
    fn count(&self, name: &str, value: Option<f64>) {
        let recorder = &self.parts.recorder;
        if let Some((counter, value)) = recorder.counter(name).zip(value) {
            recorder.count(counter, value);
        }
    }

    /// Records how many tokens went through each expert here in the step.
    fn count_expert_tokens(&mut self) {
        let (experts, at) = (self.config.model.experts.unwrap_or_default(), self.at);
        let here = self.config.layout.experts_here(experts, at);
        // Tensor ranks have parts of the same experts.
        for (layer, tokens) in self.stage.take_expert_tokens().into_iter().filter(|_| at.tp == 0) {
            for (expert, tokens) in here.clone().zip(tokens) {
                self.count(&expert_tokens(layer, expert), Some(tokens as f64));
            }
        }
    }

    /// The mean cross-entropy of as much data as a step has, none of which is trained on.
    fn evaluate(&mut self, data: &Dataset) -> Result<f64, TrainError> {
        let recorder = self.parts.recorder.clone();
        let _phase = recorder.phase(Phase::Evaluation);
        let (config, at) = (&self.config, self.at);
        self.stage.clear_totals();
        // The same each time.
        let batch = |micro_batch: u64| batch(config, at, data, (Use::Evaluation, 0), micro_batch);
        self.stage.with_cross_entropy_alone(|stage| self.pipeline.evaluate(stage, &mut self.state, &batch))?;
        self.sum_totals();
        let totals = self.parts.backend.download(&self.stage.totals.all)?;
        Ok(totals[0])
    }

    /// Adds up the loss and the gradients of the next step, on this rank.
    fn accumulate(&mut self, data: &Dataset) -> Result<(), TrainError> {
        let TrainingRank { config, at, next_step, .. } = self;
        let (config, at, step) = (&*config, *at, *next_step);
        self.state.clear_gradients();
        self.stage.clear_totals();
        let batch = |micro_batch: u64| batch(config, at, data, (Use::Training, step), micro_batch);
        self.pipeline.run(&mut self.stage, &mut self.state, &batch)
    }

    /// Writes a checkpoint of what has been learned so far; all ranks do so together.
    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        let _phase = self.parts.recorder.phase(Phase::Checkpoint);
        checkpoint::save(directory, &self.config, self.at, self.next_step, &self.state, &self.parts, &self.groups)
    }

    /// Sums the loss of all ranks, those that have the head having their share of it, and the squares of the gradient.
    fn sum_totals(&self) {
        let totals = &self.stage.totals;
        if let Some(world) = &self.groups.world {
            if self.at.tp > 0 {
                // Tensor ranks have the same loss.
                self.parts.backend.zero(&totals.loss);
            }
            self.parts.communicator.all_reduce(world, Stream::Compute, &totals.all, Reduction::Sum);
        }
    }

    /// The loss of all ranks, and what their gradients come to.
    fn totals(&mut self) -> Result<Means, TrainError> {
        let totals = self.parts.backend.download(&self.stage.totals.all)?;
        let layout = &self.config.layout;
        let noise_scale = totals.get(2).and_then(|small| {
            // Gradients are shares of that of the step; replicas have one small one each.
            let shares = (layout.dp * layout.micro_batches) as f64;
            let small = small * shares.powi(2) / layout.dp as f64;
            let tokens = layout.tokens_per_step() as f64;
            let large = Measured { square: totals[1], tokens };
            self.noise_scale.add(Measured { square: small, tokens: tokens / shares }, large)
        });
        Ok(Means { loss: totals[0], gradient_norm: totals[1].sqrt(), noise_scale })
    }
}

/// What a step comes to, over all ranks.
struct Means {
    loss: f64,
    gradient_norm: f64,
    noise_scale: Option<f64>,
}

/// The sequences that a replica sees in a micro-batch, or this rank's chunks of them.
fn batch(
    config: &TrainConfig,
    at: Coordinates,
    data: &Dataset,
    (of, step): (Use, u64),
    micro_batch: u64,
) -> Result<Batch, TrainError> {
    let layout = &config.layout;
    let length = layout.sequence_length as usize;
    let first = (at.dp * layout.micro_batches + micro_batch) * layout.micro_batch;
    let mut batch = Batch { tokens: Vec::new(), targets: Vec::new() };
    for start in layout.chunk_starts(at.cp) {
        let chunk = start as usize..(start + layout.chunk_tokens()) as usize;
        for index in first..first + layout.micro_batch {
            let sequence = data.sequence(of, config.seed, step, index, length)?;
            let tokens = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).collect::<Vec<u32>>();
            batch.tokens.extend(tokens(&sequence[..length][chunk.clone()]));
            batch.targets.extend(tokens(&sequence[1..][chunk.clone()]));
        }
    }
    Ok(batch)
}
