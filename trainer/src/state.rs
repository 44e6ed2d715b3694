//! What a rank holds between steps: parameters, gradients and the optimizer's state, whole or in shards.
//!
//! As in the frameworks that people use, gradients take their memory in the first backward pass, and the optimizer's
//! moments theirs in the first update.

use std::{ops::Range, sync::Arc};

use stepscope_collector::Context;
use stepscope_plan::{Coordinates, Part, Placement, Slot, Zero};
use stepscope_traces::{Layer, MemoryCategory};

use crate::{
    backend::{AdamW, Backend, DType, OptimizerTensors, Stream, Tensor},
    comm::{ProcessGroup, Reduction},
    error::TrainError,
    lazy_tensor::LazyTensor,
    numbers::Numbers,
    parallel::{
        data::{Reduced, Replicas, WholeGradients},
        zero::{ShardedGradients, ShardedWeights, WholeWeights},
    },
};

/// What a rank holds between steps.
pub(crate) struct State {
    pub(crate) placement: Placement,
    replicas: Replicas,
    sharded: bool,
    weights: Weights,
    gradients: Gradients,
    pub(crate) optimizer: OptimizerState,
    /// Who holds the other copy of a tied embedding.
    ends: Option<ProcessGroup>,
    /// Who shares the rows of tokens, if anybody does.
    sharing_rows: Option<ProcessGroup>,
    /// Where this rank is, and where the squares of its first micro-batch's gradient are added up, if they are.
    at: Coordinates,
    small_squares: Option<Tensor>,
    /// What it holds of experts, which other replicas hold than those that hold all the rest.
    pub(crate) experts: Option<Box<State>>,
}

/// Where a micro-batch is in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfStep {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

enum Weights {
    Whole(WholeWeights),
    Sharded(ShardedWeights),
}

enum Gradients {
    Whole(WholeGradients),
    Sharded(ShardedGradients),
}

/// Moments and master weights of what this rank updates.
pub(crate) struct OptimizerState {
    pub(crate) master: Option<Tensor>,
    first_moment: LazyTensor,
    second_moment: LazyTensor,
}

/// What its tensors are called.
const NAMES: [&str; 3] = ["master", "first_moment", "second_moment"];

impl OptimizerState {
    /// Its tensors, by name.
    pub(crate) fn tensors(&self) -> Vec<(&'static str, &Tensor)> {
        NAMES.iter().filter_map(|name| Some((*name, self.tensor(name)?))).collect()
    }

    fn tensor(&self, name: &str) -> Option<&Tensor> {
        match name {
            "master" => self.master.as_ref(),
            "first_moment" => Some(self.first_moment.get()),
            "second_moment" => Some(self.second_moment.get()),
            _ => None,
        }
    }
}

impl State {
    /// Takes the memory of weights, which are what `initial` says of each tensor.
    pub(crate) fn new(
        placement: Placement,
        replicas: Replicas,
        (zero, prefetch): (Zero, u64),
        numbers: Numbers,
        (at, small_squares): (Coordinates, Option<Tensor>),
        (ends, sharing_rows): (Option<ProcessGroup>, Option<ProcessGroup>),
        initial: impl Fn(&Slot, &mut [f32]),
    ) -> Result<State, TrainError> {
        // One replica has nothing to share.
        let zero = if replicas.count() == 1 { Zero::Off } else { zero };
        let whole = placement.elements as usize;
        let share = whole / replicas.count();
        let lazy = |from: Zero, dtype, category| {
            let elements = if zero >= from { share } else { whole };
            LazyTensor::new(replicas.backend.clone(), elements, dtype, category)
        };
        let weights = lazy(Zero::Three, numbers.compute, MemoryCategory::Parameters).get().clone();
        let gradients = lazy(Zero::Two, numbers.gradients, MemoryCategory::Gradients);
        let state = || lazy(Zero::One, numbers.state(), MemoryCategory::OptimizerState);
        let optimizer = OptimizerState {
            master: (numbers.compute == DType::Bf16).then(|| state().get().clone()),
            first_moment: state(),
            second_moment: state(),
        };
        let weights = if zero == Zero::Three {
            Weights::Sharded(ShardedWeights::new(replicas.clone(), weights, prefetch))
        } else {
            Weights::Whole(WholeWeights::new(replicas.clone(), weights))
        };
        let gradients = if zero >= Zero::Two {
            Gradients::Sharded(ShardedGradients::new(replicas.clone(), gradients))
        } else {
            let to = if zero == Zero::One { Reduced::ToShards } else { Reduced::Everywhere };
            Gradients::Whole(WholeGradients::new(replicas.clone(), gradients, to))
        };
        let sharded = zero >= Zero::One;
        let state = State {
            placement,
            replicas,
            sharded,
            weights,
            gradients,
            optimizer,
            ends,
            sharing_rows,
            at,
            small_squares,
            experts: None,
        };
        // Weights take time to make: not for a device that has no room for them.
        state.backend().synchronize()?;
        state.initialise(initial);
        Ok(state)
    }

    fn initialise(&self, initial: impl Fn(&Slot, &mut [f32])) {
        for (index, unit) in self.placement.units.iter().enumerate() {
            let mut values = vec![0.0; unit.elements() as usize];
            for slot in self.placement.slots_of(unit) {
                let start = (slot.offset - unit.range.start) as usize;
                initial(slot, &mut values[start..start + slot.elements() as usize]);
            }
            self.restore(index, "master", values);
        }
    }

    /// Replaces what a unit's weights and optimizer state were; `values` are of the whole unit.
    pub(crate) fn restore(&self, unit: usize, kind: &str, values: Vec<f32>) {
        let state = self.optimizer.tensor(kind).map(|all| all.slice(self.owned(unit)));
        let weights = (kind == "master").then(|| match &self.weights {
            Weights::Whole(weights) => weights.flat.slice(self.range(unit)),
            Weights::Sharded(weights) => weights.shards.slice(self.owned(unit)),
        });
        let owned = |values: &[f32]| values[self.owned_part(unit)].to_vec();
        match (state, weights) {
            // As large as each other: what is on the device already need not go there twice.
            (Some(state), Some(weights)) if state.elements() == weights.elements() => {
                let values = if values.len() == state.elements() { values } else { owned(&values) };
                self.backend().upload(values, &state);
                self.backend().copy(&state, &weights);
            }
            (state, weights) => {
                state.into_iter().for_each(|state| self.backend().upload(owned(&values), &state));
                if let Some(weights) = weights {
                    let values = if values.len() == weights.elements() { values } else { owned(&values) };
                    self.backend().upload(values, &weights);
                }
            }
        }
    }

    fn backend(&self) -> &Arc<dyn Backend> {
        &self.replicas.backend
    }

    /// Where a unit lies in the flat allocation.
    pub(crate) fn range(&self, unit: usize) -> Range<usize> {
        let range = &self.placement.units[unit].range;
        range.start as usize..range.end as usize
    }

    fn ranges(&self) -> Vec<Range<usize>> {
        (0..self.placement.units.len()).map(|unit| self.range(unit)).collect()
    }

    /// Where what this rank updates of a unit lies in the optimizer's state.
    pub(crate) fn owned(&self, unit: usize) -> Range<usize> {
        let range = self.range(unit);
        if self.sharded { self.replicas.place_among_shards(&range) } else { range }
    }

    /// Where what this rank updates of a unit lies in the whole unit.
    pub(crate) fn owned_part(&self, unit: usize) -> Range<usize> {
        let elements = self.range(unit).len();
        if self.sharded { self.replicas.shard(elements) } else { 0..elements }
    }

    /// Says which units will be needed, in order; those that are needed together stand together.
    pub(crate) fn expect(&mut self, needs: &[Vec<Part>]) {
        let units = &self.placement.units;
        let find = |part: &Part| units.iter().position(|unit| unit.part == *part);
        if let Weights::Sharded(weights) = &mut self.weights {
            let needs = needs.iter().map(|parts| parts.iter().filter_map(find).collect::<Vec<usize>>());
            weights.expect(needs.filter(|units| !units.is_empty()).collect());
        }
        self.experts.iter_mut().for_each(|experts| experts.expect(needs));
    }

    /// The parameters of units that are needed together, ready to compute with. Those that come next are on their way then.
    pub(crate) fn weights<const N: usize>(&mut self, units: [usize; N]) -> [Tensor; N] {
        let ranges = units.map(|unit| self.range(unit));
        let ready = match &mut self.weights {
            Weights::Whole(weights) => std::array::from_fn(|index| weights.of(units[index], &ranges[index])),
            Weights::Sharded(weights) => {
                weights.begin(&units);
                std::array::from_fn(|index| weights.of(units[index], &ranges[index]))
            }
        };
        self.prefetch();
        ready
    }

    fn prefetch(&mut self) {
        let Weights::Sharded(weights) = &self.weights else { return };
        for unit in weights.ahead() {
            let (range, recorder) = (self.range(unit), self.replicas.recorder.clone());
            let _layer = recorder.enter(self.context(unit));
            if let Weights::Sharded(weights) = &mut self.weights {
                weights.prefetch(unit, &range);
            }
        }
    }

    /// Says that a unit's parameters are not needed for now.
    pub(crate) fn release(&mut self, unit: usize) {
        if let Weights::Sharded(weights) = &mut self.weights {
            weights.release(unit);
        }
    }

    /// Where a unit's gradient is added up.
    pub(crate) fn gradients(&mut self, unit: usize) -> Tensor {
        let range = self.range(unit);
        match &mut self.gradients {
            Gradients::Whole(gradients) => gradients.of(&range),
            Gradients::Sharded(gradients) => gradients.of(unit, &range),
        }
    }

    /// Says that a unit's gradient of a micro-batch is complete.
    pub(crate) fn complete(&mut self, unit: usize, micro_batch: OfStep) {
        let range = self.range(unit);
        let recorder = self.replicas.recorder.clone();
        let _layer = recorder.enter(self.context(unit));
        if let Some(total) = self.small_squares.clone().filter(|_| micro_batch.is_first) {
            let gradient = self.gradients(unit);
            self.add_squares_of(unit, &gradient, 0..gradient.elements(), &total);
        }
        if matches!(&self.gradients, Gradients::Whole(_)) && !micro_batch.is_last {
            return;
        }
        self.sum_over_rows(unit);
        match &mut self.gradients {
            Gradients::Whole(gradients) => gradients.complete(&range),
            Gradients::Sharded(gradients) => gradients.complete(unit, &range, micro_batch.is_last),
        }
    }

    /// Ranks that share the rows have each seen only theirs go through the parameters that all of them hold.
    fn sum_over_rows(&mut self, unit: usize) {
        let Some(group) = self.sharing_rows.clone() else { return };
        let gradient = self.gradients(unit);
        let of = &self.placement.units[unit];
        // All rows go through a router on every rank.
        let shared = |slot: &&Slot| slot.replicated && slot.name != "router";
        for slot in self.placement.slots_of(of).iter().filter(shared) {
            let start = (slot.offset - of.range.start) as usize;
            let part = gradient.slice(start..start + slot.elements() as usize);
            self.replicas.communicator.all_reduce(&group, Stream::Compute, &part, Reduction::Sum);
        }
    }

    /// Where in the training work for a unit is, which may not be where the pass is.
    fn context(&self, unit: usize) -> Context {
        // What is for several layers is of none.
        let Range { start, end } = self.placement.units[unit].layers;
        let layer = (end - start == 1).then_some(Layer(start as i32));
        Context { layer, ..self.replicas.recorder.context() }
    }

    /// Begins a step: nothing has been added up.
    pub(crate) fn clear_gradients(&self) {
        match &self.gradients {
            Gradients::Whole(gradients) => gradients.clear(),
            Gradients::Sharded(gradients) => gradients.clear(),
        }
        self.experts.iter().for_each(|experts| experts.clear_gradients());
    }

    /// Ends a backward pass: the gradient is that of all replicas.
    pub(crate) fn finish_gradients(&mut self) {
        let ranges = self.ranges();
        match &mut self.gradients {
            Gradients::Whole(gradients) => gradients.finish(&ranges),
            Gradients::Sharded(gradients) => gradients.finish(),
        }
        self.sum_tied_embeddings();
        self.experts.iter_mut().for_each(|experts| experts.finish_gradients());
    }

    /// Both ends of the pipeline use the tied embedding, and each has seen only its own use.
    fn sum_tied_embeddings(&self) {
        let tied = [Part::Embedding, Part::TiedEmbedding];
        let unit = self.placement.units.iter().position(|unit| tied.contains(&unit.part));
        if let (Some(group), Some(unit)) = (&self.ends, unit) {
            let gradient = self.owned_gradient(unit);
            self.replicas.communicator.all_reduce(group, Stream::Compute, &gradient, Reduction::Sum);
        }
    }

    /// The gradient of what this rank updates of a unit.
    pub(crate) fn owned_gradient(&self, unit: usize) -> Tensor {
        match &self.gradients {
            Gradients::Whole(gradients) => gradients.of(&self.range(unit)).slice(self.owned_part(unit)),
            Gradients::Sharded(gradients) => gradients.shards().slice(self.owned(unit)),
        }
    }

    /// What this rank updates of a unit's parameters.
    pub(crate) fn owned_weights(&self, unit: usize) -> Tensor {
        match &self.weights {
            Weights::Whole(weights) => weights.flat.slice(self.range(unit)).slice(self.owned_part(unit)),
            Weights::Sharded(weights) => weights.shards.slice(self.owned(unit)),
        }
    }

    /// Adds the squares of the gradient to a total, which over all ranks has each number once.
    pub(crate) fn add_squares(&self, total: &Tensor) {
        self.experts.iter().for_each(|experts| experts.add_squares(total));
        // Replicas that share nothing all have the same, and so have groups of those that share.
        if self.replicas.is_copy() || self.replicas.index() > 0 && !self.sharded {
            return;
        }
        for index in 0..self.placement.units.len() {
            self.add_squares_of(index, &self.owned_gradient(index), self.owned_part(index), total);
        }
    }

    /// Adds the squares of a part of a unit's gradient, where no other rank of the replica adds the same.
    fn add_squares_of(&self, unit: usize, gradient: &Tensor, part: Range<usize>, total: &Tensor) {
        let unit = &self.placement.units[unit];
        match unit.part {
            // Its other copy is counted.
            Part::TiedEmbedding => {}
            _ if self.at.tp == 0 => self.backend().add_squares(gradient, total),
            _ => {
                for slot in self.placement.slots_of(unit).iter().filter(|slot| !slot.replicated) {
                    let start = (slot.offset - unit.range.start) as usize;
                    let (from, to) = (start.max(part.start), (start + slot.elements() as usize).min(part.end));
                    if from < to {
                        self.backend().add_squares(&gradient.slice(from - part.start..to - part.start), total);
                    }
                }
            }
        }
    }

    /// Takes a step of the optimizer, given the squares of the whole gradient.
    pub(crate) fn update(&mut self, settings: AdamW, squares: &Tensor) {
        self.experts.iter_mut().for_each(|experts| experts.update(settings, squares));
        let recorder = self.replicas.recorder.clone();
        for unit in 0..self.placement.units.len() {
            let _layer = recorder.enter(self.context(unit));
            for (decays, part) in self.by_decay(unit) {
                let weight_decay = if decays { settings.weight_decay } else { 0.0 };
                self.update_part(unit, &part, AdamW { weight_decay, ..settings }, squares);
            }
            let range = self.range(unit);
            if let Weights::Whole(weights) = &mut self.weights
                && self.sharded
            {
                weights.gather(unit, &range);
            }
        }
    }

    /// What this rank updates of a unit, in parts whose weights all decay or all do not: vectors scale what they are multiplied
    /// by, and would only be made up for elsewhere. Padding goes with what is before it.
    fn by_decay(&self, unit: usize) -> Vec<(bool, Range<usize>)> {
        let (of, owned) = (&self.placement.units[unit], self.owned_part(unit));
        let slots = self.placement.slots_of(of);
        let mut parts: Vec<(bool, Range<usize>)> = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            let next = slots.get(index + 1).map_or(of.range.end, |next| next.offset);
            let [from, to] = [slot.offset, next].map(|at| (at - of.range.start) as usize);
            let part = from.clamp(owned.start, owned.end) - owned.start..to.clamp(owned.start, owned.end) - owned.start;
            let decays = slot.columns > 1;
            match parts.last_mut() {
                _ if part.is_empty() => {}
                Some((same, before)) if *same == decays => before.end = part.end,
                _ => parts.push((decays, part)),
            }
        }
        parts
    }

    fn update_part(&self, unit: usize, part: &Range<usize>, settings: AdamW, squares: &Tensor) {
        let owned = self.owned(unit);
        let of = |tensor: &Tensor| tensor.slice(owned.clone()).slice(part.clone());
        let OptimizerState { master, first_moment, second_moment } = &self.optimizer;
        let master = master.as_ref().map(of);
        let tensors = OptimizerTensors {
            gradients: &self.owned_gradient(unit).slice(part.clone()),
            parameters: &self.owned_weights(unit).slice(part.clone()),
            master: master.as_ref(),
            first_moment: &of(first_moment.get()),
            second_moment: &of(second_moment.get()),
            squares,
        };
        self.backend().adamw(settings, tensors);
    }
}
