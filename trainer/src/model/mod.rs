//! A Llama-style decoder, forward and backward, by hand: what each part computes, and nothing of how it is spread.

mod attention;
mod embedding;
mod experts;
mod head;
mod initial;
mod layer;
mod matrices;
mod network;
mod rows;
mod stage;
mod weights;

pub(crate) use initial::initial;
pub(crate) use stage::{Batch, Stage};

use std::sync::Arc;

use stepscope_collector::Recorder;
use stepscope_plan::{FeedForward, ModelShape, Norm, ParallelLayout};
use stepscope_traces::MemoryCategory;

use crate::{
    backend::{Backend, DType, Heads, Product, Routing, Tensor},
    error::TrainError,
    numbers::Numbers,
    parallel::{context::ContextParallel, expert::ExpertParallel, tensor::TensorParallel},
};

/// Says what this trainer has no code for.
pub(crate) fn check(model: &ModelShape) -> Result<(), TrainError> {
    let missing = [
        (model.norm != Norm::Rms, "its norms are not RMS norms"),
        (model.feed_forward != FeedForward::Gated, "its feed-forward network is not gated"),
        (model.biases != Default::default(), "it has biases"),
        (model.latent.is_some(), "its attention is latent"),
        (model.qk_norm, "it normalizes queries and keys"),
        (model.learned_positions.is_some(), "it has learned positions"),
        (model.experts.is_some_and(|experts| experts.router_bias), "its router has biases"),
        (!model.head_dim.is_multiple_of(2), "its head_dim is odd, but rotary positions need pairs"),
    ];
    match missing.into_iter().find(|(missing, _)| *missing) {
        Some((_, what)) => Err(TrainError::Model(format!("{} is not one: {what}", model.name))),
        None => Ok(()),
    }
}

/// What the parts of a model compute with, on one rank.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) recorder: Recorder,
    pub(crate) tensor: TensorParallel,
    pub(crate) context: ContextParallel,
    pub(crate) expert: ExpertParallel,
    pub(crate) numbers: Numbers,
    pub(crate) sizes: Sizes,
}

/// The sizes of one micro-batch on one tensor rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) tokens: usize,
    /// Those of them that this rank has between matrices.
    pub(crate) rows_here: usize,
    pub(crate) hidden: usize,
    /// Those of a chunk of the sequences: of all of them, unless ranks have parts of sequences.
    pub(crate) heads: Heads,
    /// How tokens choose experts, if there are any.
    pub(crate) routing: Option<Routing>,
}

impl Sizes {
    /// With a balance loss of this weight, if there are experts.
    pub(crate) fn of(model: &ModelShape, layout: &ParallelLayout, balance_loss: f64) -> Sizes {
        let here = |whole: u64| (whole / layout.tp) as usize;
        Sizes {
            tokens: layout.micro_batch_tokens() as usize,
            rows_here: (layout.micro_batch_tokens() / layout.token_shares()) as usize,
            hidden: model.hidden as usize,
            heads: Heads {
                batch: layout.micro_batch as usize,
                sequence: layout.chunk_tokens() as usize,
                heads: here(model.heads),
                kv_heads: here(model.kv_heads),
                head_dim: model.head_dim as usize,
                causal: true,
            },
            routing: model.experts.map(|experts| Routing {
                sequences: layout.micro_batch as usize,
                sequence: layout.sequence_length as usize,
                chunk: layout.chunk_tokens() as usize,
                experts: experts.count as usize,
                top_k: experts.top_k as usize,
                // So that the sequences of a step add up to their mean.
                balance: balance_loss / layout.global_batch() as f64,
            }),
        }
    }
}

impl Engine {
    /// A row of numbers for each token, kept for the backward pass.
    pub(crate) fn activation(&self, width: usize) -> Tensor {
        self.rows(width, MemoryCategory::Activations)
    }

    /// A row of numbers for each token, used at once.
    pub(crate) fn temporary(&self, width: usize) -> Tensor {
        self.rows(width, MemoryCategory::Workspace)
    }

    pub(crate) fn rows(&self, width: usize, category: MemoryCategory) -> Tensor {
        self.backend.allocate(self.sizes.tokens * width, self.numbers.compute, category)
    }

    /// Sums of rows, which are kept more exactly.
    pub(crate) fn sums(&self, per_token: usize, category: MemoryCategory) -> Tensor {
        self.backend.allocate(self.sizes.tokens * per_token, self.numbers.compute.sum(), category)
    }

    pub(crate) fn tokens(&self) -> Tensor {
        self.backend.allocate(self.sizes.tokens, DType::U32, MemoryCategory::Inputs)
    }

    /// `y = x · weightᵀ`, a weight being outputs × inputs.
    pub(crate) fn project(&self, x: &Tensor, weight: &Tensor, y: &Tensor) {
        self.project_onto(x, weight, y, false);
    }

    /// The same, added to what is there or not.
    pub(crate) fn project_onto(&self, x: &Tensor, weight: &Tensor, y: &Tensor, accumulate: bool) {
        let (inputs, outputs) = self.widths(x, y);
        let product = Product { transpose_b: true, accumulate, ..self.product(outputs, inputs) };
        self.backend.matmul(product, x, weight, y);
    }

    /// The gradient of a projection's input: `d_x = d_y · weight`.
    pub(crate) fn project_backward(&self, d_y: &Tensor, weight: &Tensor, d_x: &Tensor) {
        self.project_backward_onto(d_y, weight, d_x, false);
    }

    /// The same, added to what is there or not.
    pub(crate) fn project_backward_onto(&self, d_y: &Tensor, weight: &Tensor, d_x: &Tensor, accumulate: bool) {
        let (inputs, outputs) = self.widths(d_x, d_y);
        self.backend.matmul(Product { accumulate, ..self.product(inputs, outputs) }, d_y, weight, d_x);
    }

    /// The gradient of a projection's weight: `d_weight += d_yᵀ · x`.
    pub(crate) fn weight_backward(&self, d_y: &Tensor, x: &Tensor, d_weight: &Tensor) {
        let (inputs, outputs) = self.widths(x, d_y);
        let product = Product::plain(outputs, inputs, self.sizes.tokens);
        self.backend.matmul(Product { transpose_a: true, accumulate: true, ..product }, d_y, x, d_weight);
    }

    fn product(&self, columns: usize, inner: usize) -> Product {
        Product::plain(self.sizes.tokens, columns, inner)
    }

    fn widths(&self, x: &Tensor, y: &Tensor) -> (usize, usize) {
        (x.elements() / self.sizes.tokens, y.elements() / self.sizes.tokens)
    }
}
