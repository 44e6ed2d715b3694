//! The part of a model that one rank computes: chunks of layers, and perhaps the embedding and the head.

use std::collections::{BTreeMap, HashMap};

use stepscope_plan::{ParallelLayout, Part, Placement, Recompute, Schedule, Unit};
use stepscope_traces::{Layer, MemoryCategory};

use super::{
    Engine,
    experts::ExpertTensors,
    head::{self, HeadTensors},
    layer::{self, OfLayer, WentThrough},
    matrices::{MatrixGradients, PutOff},
    weights::{LayerTensors, named},
};
use crate::{
    backend::{LossWeights, Routing, Tensor},
    state::{OfStep, State},
};

/// Tokens of a micro-batch, and what should follow each of them.
pub(crate) struct Batch {
    pub(crate) tokens: Vec<u32>,
    pub(crate) targets: Vec<u32>,
}

/// The part of a model that one rank computes.
pub(crate) struct Stage {
    engine: Engine,
    recompute: Recompute,
    chunks: Vec<Chunk>,
    /// What passes on to another stage is memory for communication.
    sends: bool,
    /// By chunk and micro-batch.
    kept: HashMap<(usize, u64), Kept>,
    /// Whether gradients of matrices have a pass of their own; and what is put off until then, by chunk and micro-batch, of the
    /// layers in the order of the backward pass.
    puts_off: bool,
    put_off: HashMap<(usize, u64), Vec<Vec<PutOff>>>,
    loss: LossWeights,
    /// Tokens that went through each expert here, by layer.
    expert_tokens: BTreeMap<u64, Vec<usize>>,
    /// What is added up over the step.
    pub(crate) totals: Totals,
}

/// Numbers that are added up over a step, and over ranks in one go.
pub(crate) struct Totals {
    /// All of them.
    pub(crate) all: Tensor,
    /// The loss.
    pub(crate) loss: Tensor,
    /// The squares of the gradient.
    pub(crate) squares: Tensor,
    /// Those of the gradient of each replica's first micro-batch, if they are asked for.
    pub(crate) small_squares: Option<Tensor>,
}

impl Totals {
    fn new(engine: &Engine, of_micro_batch: bool) -> Totals {
        let count = if of_micro_batch { 3 } else { 2 };
        let all = engine.backend.allocate(count, engine.numbers.compute.sum(), MemoryCategory::Workspace);
        let small_squares = of_micro_batch.then(|| all.slice(2..3));
        Totals { loss: all.slice(0..1), squares: all.slice(1..2), small_squares, all }
    }
}

/// Units of a chunk, in the order of the forward pass.
struct Chunk {
    embedding: Option<usize>,
    layers: Vec<LayersOfUnit>,
    head: Option<Head>,
}

/// Layers whose parameters come and go together, in the order of the forward pass.
struct LayersOfUnit {
    unit: usize,
    layers: Vec<LayerOfUnit>,
}

struct LayerOfUnit {
    layer: u64,
    /// The unit of its experts, among those of experts.
    experts: Option<usize>,
}

struct Head {
    unit: usize,
    /// The unit that holds the matrix: its own, or an embedding.
    matrix: usize,
    matrix_name: &'static str,
}

#[derive(Default)]
struct Kept {
    tokens: Option<Tensor>,
    targets: Option<Tensor>,
    layers: Vec<layer::Kept>,
    head: Option<head::Kept>,
}

impl Chunk {
    fn of(placement: &Placement, of_experts: &Placement, chunk: u64) -> Chunk {
        let units = || placement.units.iter().enumerate().filter(move |(_, unit)| unit.chunk == chunk);
        let find = |part: Part| units().find(|(_, unit)| unit.part == part).map(|(index, _)| index);
        let with_experts = |layer| {
            let experts = of_experts.units.iter().position(|unit| unit.part == Part::Experts(layer));
            LayerOfUnit { layer, experts }
        };
        let layers = units().filter(|(_, unit)| !unit.layers.is_empty());
        let layers = layers
            .map(|(index, unit)| LayersOfUnit { unit: index, layers: unit.layers.clone().map(with_experts).collect() });
        let head = find(Part::Head).map(|unit| {
            let tied = find(Part::TiedEmbedding).or_else(|| {
                // One stage has them both.
                let all = placement.units.iter();
                all.enumerate().find(|(_, unit)| unit.part == Part::Embedding).map(|(index, _)| index)
            });
            let own = placement.slots_of(&placement.units[unit]).iter().any(|slot| slot.name == "head");
            match tied.filter(|_| !own) {
                Some(matrix) => Head { unit, matrix, matrix_name: "embedding" },
                None => Head { unit, matrix: unit, matrix_name: "head" },
            }
        });
        Chunk { embedding: find(Part::Embedding), layers: layers.collect(), head }
    }
}

impl Stage {
    /// The part of a rank. The loss has a z-loss of this weight; squares of a micro-batch's gradient are counted, or not.
    pub(crate) fn new(
        engine: Engine,
        (placement, of_experts): (&Placement, &Placement),
        layout: &ParallelLayout,
        z_loss: f64,
        counts_small_squares: bool,
    ) -> Stage {
        let chunks: Vec<Chunk> = (0..layout.chunks).map(|chunk| Chunk::of(placement, of_experts, chunk)).collect();
        let totals = Totals::new(&engine, counts_small_squares);
        let sends = chunks.iter().any(|chunk| chunk.head.is_none());
        // So that the tokens of a step add up to their mean.
        let loss = LossWeights { scale: 1.0 / layout.tokens_per_step() as f64, z: z_loss };
        let (recompute, puts_off) = (layout.recompute, layout.schedule == Schedule::ZeroBubble);
        let (kept, put_off) = (HashMap::new(), HashMap::new());
        let expert_tokens = BTreeMap::new();
        Stage { engine, recompute, chunks, sends, kept, puts_off, put_off, loss, expert_tokens, totals }
    }

    /// Does something with the cross-entropy alone as the loss, and counts no tokens of experts.
    pub(crate) fn with_cross_entropy_alone<T>(&mut self, work: impl FnOnce(&mut Stage) -> T) -> T {
        let (z, routing) = (std::mem::replace(&mut self.loss.z, 0.0), self.engine.sizes.routing);
        self.engine.sizes.routing = routing.map(|routing| Routing { balance: 0.0, ..routing });
        let counted = self.expert_tokens.clone();
        let outcome = work(self);
        (self.loss.z, self.engine.sizes.routing, self.expert_tokens) = (z, routing, counted);
        outcome
    }

    /// Begins a step.
    pub(crate) fn clear_totals(&self) {
        self.engine.backend.zero(&self.totals.all);
    }

    /// How many tokens went through each expert here since this was last asked, by layer.
    pub(crate) fn take_expert_tokens(&mut self) -> BTreeMap<u64, Vec<usize>> {
        std::mem::take(&mut self.expert_tokens)
    }

    /// What comes in from another stage: rows here × hidden.
    pub(crate) fn incoming(&self, category: MemoryCategory) -> Tensor {
        self.engine.rows_here(category)
    }

    /// Takes a micro-batch forward through a chunk. The first chunk looks at the batch instead of an input; the last
    /// adds to the loss and passes nothing on.
    pub(crate) fn forward(
        &mut self,
        state: &mut State,
        (chunk, micro_batch): (usize, u64),
        input: Option<Tensor>,
        batch: &Batch,
    ) -> Option<Tensor> {
        let Stage { engine, recompute, chunks, .. } = &*self;
        let this = &chunks[chunk];
        let mut kept = Kept::default();
        let mut x = input;
        if let Some(unit) = this.embedding {
            let [weights] = state.weights([unit]);
            let tokens = engine.tokens();
            engine.backend.upload_tokens(batch.tokens.clone(), &tokens);
            let of = &state.placement.units[unit];
            let table = named(&state.placement, of, &weights, "embedding");
            x = Some(engine.embedding_forward(&tokens, &table, &state.placement.slots_of(of)[0]));
            kept.tokens = Some(tokens);
            state.release(unit);
        }
        let mut expert_tokens = Vec::new();
        let last = this.layers.last().and_then(|of| of.layers.last()).map(|last| last.layer);
        for LayersOfUnit { unit, layers } in &this.layers {
            let mut own = None;
            for LayerOfUnit { layer, experts } in layers {
                let Some(input) = x.take() else { break };
                let _layer = engine.recorder.layer(Layer(*layer as i32));
                let own = own.get_or_insert_with(|| state.weights([*unit]));
                let weights = LayerTensors::of(&state.placement, (*unit, *layer), &own[0]);
                let of_experts = expert_weights(state, *experts);
                let leaves = self.sends && Some(*layer) == last && this.head.is_none();
                let category = if leaves { MemoryCategory::Communication } else { MemoryCategory::Activations };
                let weights = OfLayer { own: &weights, experts: of_experts.as_ref() };
                let mut went_through = WentThrough { loss: &self.totals.loss, rows_of_experts: Vec::new() };
                let (output, kept_layer) =
                    engine.layer_forward(&weights, input, (*recompute, category), &mut went_through);
                kept.layers.push(kept_layer);
                expert_tokens.push((*layer, went_through.rows_of_experts));
                x = Some(output);
                release_experts(state, *experts);
            }
            state.release(*unit);
        }
        if let (Some(head), Some(input)) = (&this.head, x.take_if(|_| this.head.is_some())) {
            let weights = head.weights(state);
            let targets = engine.tokens();
            engine.backend.upload_tokens(batch.targets.clone(), &targets);
            kept.head = Some(engine.head_forward(&weights, input, &targets, self.loss, &self.totals.loss));
            kept.targets = Some(targets);
            head.release(state);
        }
        self.kept.insert((chunk, micro_batch), kept);
        for (layer, rows) in expert_tokens.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let counted = self.expert_tokens.entry(layer).or_insert_with(|| vec![0; rows.len()]);
            counted.iter_mut().zip(rows).for_each(|(count, rows)| *count += rows);
        }
        x
    }

    /// Forgets what was kept of a micro-batch that will not come back.
    pub(crate) fn forget(&mut self, place: (usize, u64)) {
        self.kept.remove(&place);
    }

    /// Takes the gradient of a chunk's output back through it: the gradient of its input, if there was one.
    pub(crate) fn backward(
        &mut self,
        state: &mut State,
        (chunk, micro_batch): (usize, u64),
        gradient: Option<Tensor>,
        at: OfStep,
    ) -> Option<Tensor> {
        let Kept { tokens, targets, mut layers, head: head_kept } = self.kept.remove(&(chunk, micro_batch))?;
        let engine = &self.engine;
        let this = &self.chunks[chunk];
        let mut gradient = gradient;
        if let (Some(head), Some(kept), Some(targets)) = (&this.head, head_kept, targets) {
            let weights = head.weights(state);
            let gradients = head.gradients(state);
            gradient = Some(engine.head_backward(&weights, &gradients, kept, &targets, self.loss));
            head.release(state);
            head.complete(state, this.embedding, at);
        }
        let gradient = gradient?;
        let mut put_off = Vec::new();
        for LayersOfUnit { unit, layers: of_unit } in this.layers.iter().rev() {
            let mut own = None;
            for LayerOfUnit { layer, experts } in of_unit.iter().rev() {
                let _layer = engine.recorder.layer(Layer(*layer as i32));
                let (weights, gradients) = own.get_or_insert_with(|| (state.weights([*unit]), state.gradients(*unit)));
                let of_experts = expert_weights(state, *experts);
                // What is put off needs no room before.
                let now = experts.filter(|_| !self.puts_off);
                let gradients_of_experts = expert_gradients(state, now);
                let of = |tensor| LayerTensors::of(&state.placement, (*unit, *layer), tensor);
                let (kept, weights, gradients) = (layers.pop()?, of(&weights[0]), of(gradients));
                let weights = OfLayer { own: &weights, experts: of_experts.as_ref() };
                let gradients = OfLayer { own: &gradients, experts: gradients_of_experts.as_ref() };
                let mut matrices =
                    if self.puts_off { MatrixGradients::Later(Vec::new()) } else { MatrixGradients::Now(&gradients) };
                engine.layer_backward(&weights, gradients.own, &mut matrices, kept, &gradient);
                release_experts(state, *experts);
                complete_experts(state, now, at);
                if let MatrixGradients::Later(later) = matrices {
                    put_off.push(later);
                }
            }
            drop(own);
            state.release(*unit);
            if !self.puts_off {
                state.complete(*unit, at);
            }
        }
        if self.puts_off {
            self.put_off.insert((chunk, micro_batch), put_off);
        }
        let Some(unit) = this.embedding else { return Some(gradient) };
        let gradients = state.gradients(unit);
        let of = &state.placement.units[unit];
        let d_table = named(&state.placement, of, &gradients, "embedding");
        engine.embedding_backward(&tokens?, &gradient, &d_table, &state.placement.slots_of(of)[0]);
        state.complete(unit, at);
        None
    }

    /// Computes the gradients of a chunk's matrices that its backward pass has put off.
    pub(crate) fn weights_backward(&mut self, state: &mut State, (chunk, micro_batch): (usize, u64), at: OfStep) {
        let mut put_off = self.put_off.remove(&(chunk, micro_batch)).unwrap_or_default().into_iter();
        for LayersOfUnit { unit, layers } in self.chunks[chunk].layers.iter().rev() {
            for (LayerOfUnit { layer, experts }, put_off) in layers.iter().rev().zip(put_off.by_ref()) {
                let _layer = self.engine.recorder.layer(Layer(*layer as i32));
                let gradients = state.gradients(*unit);
                let own = LayerTensors::of(&state.placement, (*unit, *layer), &gradients);
                let of_experts = expert_gradients(state, *experts);
                self.engine.catch_up(put_off, &OfLayer { own: &own, experts: of_experts.as_ref() });
                complete_experts(state, *experts, at);
            }
            state.complete(*unit, at);
        }
    }
}

impl Head {
    fn weights(&self, state: &mut State) -> HeadTensors {
        let [own, matrix] = match self.matrix == self.unit {
            true => {
                let [own] = state.weights([self.unit]);
                [own.clone(), own]
            }
            false => state.weights([self.unit, self.matrix]),
        };
        self.tensors(&state.placement, &own, &matrix)
    }

    fn gradients(&self, state: &mut State) -> HeadTensors {
        let (own, matrix) = (state.gradients(self.unit), state.gradients(self.matrix));
        self.tensors(&state.placement, &own, &matrix)
    }

    fn tensors(&self, placement: &Placement, own: &Tensor, matrix: &Tensor) -> HeadTensors {
        let unit = |index: usize| -> &Unit { &placement.units[index] };
        let slots = placement.slots_of(unit(self.matrix)).iter();
        let first = slots.filter(|slot| slot.name == self.matrix_name).map(|slot| slot.first_row).next();
        HeadTensors {
            norm: named(placement, unit(self.unit), own, "final_norm"),
            matrix: named(placement, unit(self.matrix), matrix, self.matrix_name),
            first: first.unwrap_or(0) as u32,
        }
    }

    fn release(&self, state: &mut State) {
        state.release(self.unit);
        state.release(self.matrix);
    }

    /// The embedding of the same chunk completes the matrix they share.
    fn complete(&self, state: &mut State, embedding: Option<usize>, at: OfStep) {
        state.complete(self.unit, at);
        if self.matrix != self.unit && Some(self.matrix) != embedding {
            state.complete(self.matrix, at);
        }
    }
}

/// The parameters of a layer's experts, if it has any.
fn expert_weights(state: &mut State, unit: Option<usize>) -> Option<ExpertTensors> {
    let (state, unit) = state.experts.as_mut().zip(unit)?;
    let [weights] = state.weights([unit]);
    Some(ExpertTensors::of(&state.placement, &state.placement.units[unit], &weights))
}

fn release_experts(state: &mut State, unit: Option<usize>) {
    state.experts.as_mut().zip(unit).into_iter().for_each(|(state, unit)| state.release(unit));
}

fn complete_experts(state: &mut State, unit: Option<usize>, at: OfStep) {
    state.experts.as_mut().zip(unit).into_iter().for_each(|(state, unit)| state.complete(unit, at));
}

/// Their gradients.
fn expert_gradients(state: &mut State, unit: Option<usize>) -> Option<ExpertTensors> {
    let (state, unit) = state.experts.as_mut().zip(unit)?;
    let gradients = state.gradients(unit);
    Some(ExpertTensors::of(&state.placement, &state.placement.units[unit], &gradients))
}
