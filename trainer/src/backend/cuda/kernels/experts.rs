//! Mixtures of experts: which experts a token goes to, the way there, and the way back.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS, WARP, blocks_of_rows,
    check::{expect, expect_room, rows, suffix},
    launch::Launch,
    source::Source,
    threads_of_row,
};
use crate::{
    backend::{DType, Routing},
    error::TrainError,
};

/// Threads that count the choices of a sequence, and that add up what blocks leave.
const SEQUENCE_THREADS: usize = 1024;
/// Blocks that add up the balance loss: enough to keep a large GPU busy, and the same on all of them, so that the order of
/// sums is too.
const SUMMING_BLOCKS: usize = 264;

/// What tokens chose.
#[derive(Clone, Copy)]
pub(crate) struct RoutedArrays {
    /// Tokens × experts.
    pub(crate) probabilities: Array,
    /// Tokens × choices.
    pub(crate) weights: Array,
    /// Tokens × choices.
    pub(crate) choices: Array,
    /// Sequences × experts.
    pub(crate) counts: Array,
}

impl RoutedArrays {
    /// How many tokens there are, if all is as the routing says.
    fn tokens(&self, routing: Routing) -> Result<usize, TrainError> {
        let Routing { sequences, chunk, experts, top_k, .. } = routing;
        // A lane of a warp for each choice.
        if top_k > experts.min(WARP) {
            return Err(TrainError::Disagreement(format!("{top_k} choices of {experts} experts")));
        }
        let tokens = rows("probabilities", self.probabilities, experts)?;
        expect("probabilities", self.probabilities, tokens * experts, DType::F32)?;
        expect("weights", self.weights, tokens * top_k, DType::F32)?;
        expect("choices", self.choices, tokens * top_k, DType::U32)?;
        expect("counts", self.counts, sequences * experts, DType::F32)?;
        rows("choices", self.choices, sequences * chunk * top_k)?;
        Ok(tokens)
    }
}

/// Blocks with a warp per token.
fn blocks_of_warps(tokens: usize) -> usize {
    tokens.div_ceil(THREADS / WARP)
}

/// What kernels are told of where sequences lie.
fn sequences(routing: Routing) -> [u64; 2] {
    [routing.chunk as u64, routing.sequences as u64]
}

impl Kernels {
    /// Chooses experts. Probabilities have logits before.
    pub(crate) fn expert_route(
        &self,
        stream: CUstream,
        routing: Routing,
        routed: RoutedArrays,
    ) -> Result<(), TrainError> {
        let tokens = routed.tokens(routing)?;
        let launch = Launch::new(blocks_of_warps(tokens), THREADS);
        let launch = launch.array(routed.probabilities).array(routed.weights).array(routed.choices);
        let launch = launch.size(tokens).size(routing.experts).size(routing.top_k);
        self.start(Source::Experts, "expert_route", launch, stream)
    }

    /// Counts how often each sequence chose each expert.
    pub(crate) fn expert_count_choices(
        &self,
        stream: CUstream,
        routing: Routing,
        routed: RoutedArrays,
    ) -> Result<(), TrainError> {
        let tokens = routed.tokens(routing)?;
        let Routing { experts, top_k, .. } = routing;
        let launch = Launch::new(routing.sequences, SEQUENCE_THREADS).shared(experts * size_of::<u32>());
        let launch = launch.array(routed.choices).structure(&sequences(routing));
        let launch = launch.size(tokens).size(experts).size(top_k).array(routed.counts);
        self.start(Source::Experts, "expert_count_choices", launch, stream)
    }

    /// What [`Kernels::expert_balance_loss`] needs.
    pub(crate) const EXPERT_WORKSPACE_BYTES: usize = SUMMING_BLOCKS * size_of::<f32>();

    /// Adds the balance loss of all sequences to one number.
    pub(crate) fn expert_balance_loss(
        &self,
        stream: CUstream,
        routing: Routing,
        routed: RoutedArrays,
        total: Array,
        sums: Array,
    ) -> Result<(), TrainError> {
        let tokens = routed.tokens(routing)?;
        expect("the total", total, 1, DType::F32)?;
        expect_room(sums, Kernels::EXPERT_WORKSPACE_BYTES)?;
        let blocks = blocks_of_warps(tokens).min(SUMMING_BLOCKS);
        let launch = Launch::new(blocks, THREADS).array(routed.probabilities).array(routed.counts);
        let launch = launch.structure(&sequences(routing)).size(tokens).size(routing.experts);
        let launch = launch.float(routing.slope() as f32).array(sums);
        self.start(Source::Experts, "expert_balance_sums", launch, stream)?;
        let launch = Launch::new(1, THREADS).array(sums).size(blocks).array(total);
        self.start(Source::Experts, "expert_balance_total", launch, stream)
    }

    /// The gradient of the logits, from that of the weights and of the balance loss.
    pub(crate) fn expert_route_backward(
        &self,
        stream: CUstream,
        routing: Routing,
        routed: RoutedArrays,
        d_weights: Array,
        d_logits: Array,
    ) -> Result<(), TrainError> {
        let tokens = routed.tokens(routing)?;
        let Routing { experts, top_k, .. } = routing;
        expect("the weights' gradient", d_weights, tokens * top_k, DType::F32)?;
        expect("the logits' gradient", d_logits, tokens * experts, d_logits.dtype)?;
        let name = format!("expert_route_backward_{}", suffix(d_logits.dtype)?);
        let launch = Launch::new(blocks_of_warps(tokens), THREADS);
        let launch = launch.array(routed.probabilities).array(routed.weights).array(routed.choices);
        let launch = launch.array(d_weights).array(routed.counts).structure(&sequences(routing));
        let launch = launch.size(tokens).size(experts).size(top_k).float(routing.slope() as f32);
        self.start(Source::Experts, &name, launch.array(d_logits), stream)
    }

    /// Sorts rows of tokens by expert.
    pub(crate) fn expert_dispatch(
        &self,
        stream: CUstream,
        tokens: Array,
        order: Array,
        sorted: Array,
        top_k: usize,
    ) -> Result<(), TrainError> {
        let (count, width) = sorted_rows(sorted, order, tokens, top_k)?;
        let name = format!("expert_dispatch_{}", suffix(tokens.dtype)?);
        let launch = Launch::new(blocks_of_rows(count, width), THREADS).array(tokens).array(order);
        let launch = launch.size(count).size(width).size(top_k).array(sorted);
        self.start(Source::Experts, &name, launch, stream)
    }

    /// Adds up the rows of each token's choices, by their weights if they have any.
    pub(crate) fn expert_combine(
        &self,
        stream: CUstream,
        sorted: Array,
        places: Array,
        weights: Option<Array>,
        tokens: Array,
        top_k: usize,
    ) -> Result<(), TrainError> {
        let (count, width) = sorted_rows(sorted, places, tokens, top_k)?;
        if let Some(weights) = weights {
            expect("the weights", weights, count, DType::F32)?;
        }
        let name = format!("expert_combine_{}", suffix(tokens.dtype)?);
        let rows = count / top_k;
        let launch = Launch::new(blocks_of_rows(rows, width), THREADS).array(sorted).array(places).optional(weights);
        let launch = launch.size(rows).size(width).size(top_k).array(tokens);
        self.start(Source::Experts, &name, launch, stream)
    }

    /// The gradients of what is combined: of its rows and of the weights.
    pub(crate) fn expert_combine_backward(
        &self,
        stream: CUstream,
        d_tokens: Array,
        (sorted, order, weights): (Array, Array, Array),
        (d_sorted, d_weights): (Array, Array),
        top_k: usize,
    ) -> Result<(), TrainError> {
        let (count, width) = sorted_rows(sorted, order, d_tokens, top_k)?;
        expect("the weights", weights, count, DType::F32)?;
        expect("the rows' gradient", d_sorted, sorted.elements, sorted.dtype)?;
        expect("the weights' gradient", d_weights, count, DType::F32)?;
        let name = format!("expert_combine_backward_{}", suffix(sorted.dtype)?);
        let launch = Launch::new(count, threads_of_row(width, THREADS)).array(d_tokens).array(sorted).array(order);
        let launch = launch.array(weights).size(width).size(top_k).array(d_sorted).array(d_weights);
        self.start(Source::Experts, &name, launch, stream)
    }
}

/// How many rows are sorted by these numbers, and how wide they are, if all is of tokens with so many choices.
fn sorted_rows(sorted: Array, numbers: Array, tokens: Array, top_k: usize) -> Result<(usize, usize), TrainError> {
    let count = numbers.elements;
    expect("numbers of choices", numbers, count, DType::U32)?;
    rows("numbers of choices", numbers, top_k)?;
    let width = rows("sorted rows", sorted, count)?;
    expect("rows of tokens", tokens, count / top_k * width, sorted.dtype)?;
    Ok((count, width))
}
