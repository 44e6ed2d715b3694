//! How long a rank computes for one micro-batch, kernel by kernel.
//!
//! - **Matrix products** run at the assumed share of the peak, or as fast as memory gives their operands and takes their
//!   result. A product with fewer tiles of 128 × 128 than the device has multiprocessors leaves the others idle; small products of
//!   experts run at once.
//! - **Attention** in tiles skips what the causal mask hides: `S·(q + o)` FLOPs a token forward and `S·(3q + 2o)` backward, where
//!   scores are computed again, for a sequence of S, queries of width q and results of width o. It has an efficiency of its own, for heads of
//!   128 and long sequences: beside its products it takes exponentials, one for each score however wide the head is, and each
//!   token costs something however long its sequence is. Naive attention multiplies the whole square, and reads and writes it
//!   several times.
//! - **All other kernels** wait for memory. Per token of a layer, in elements: norms `2h` forward and `4h` backward each,
//!   additions `3h` each, rotation `2(q + k)` each way, a gated network `3f` and `5f`, a plain one `2f` and `3f`. At the
//!   head, logits are read three times and written once.
//! - **Kernels follow each other** with a gap, and none begins before the host has launched it.

use std::ops::{Add, AddAssign, Mul};

use crate::{
    activations::Attention,
    assumptions::Assumptions,
    device::Device,
    experts::Layers,
    latent::Latent,
    layout::{ParallelLayout, Recompute},
    shape::{Experts, FeedForward, ModelShape},
};

/// The side of a tile of a matrix product.
const TILE: u64 = 128;
/// FLOPs of a product up to which those of all experts are one kernel, as in our trainer.
const MOST_FLOPS_AT_ONCE: f64 = 1e9;
/// How long a device has nothing to do while the host reads how many tokens chose each expert, in seconds: as recorded on an H200,
/// where it was 50 to 175 µs.
const READING_CHOICES: f64 = 100e-6;
/// The width of a head for which the efficiency of attention is said.
const HEAD: f64 = 128.0;

/// What a token costs flash attention in any sequence, in tokens that it attends to with heads of 128: as recorded on an H200 in
/// sequences of 256 to 16,384 tokens.
const COST_OF_TOKEN: f64 = 1900.0;

/// What flash attention reaches with the heads of a model in sequences of a length, as a share of what it reaches with heads of
/// 128 in long ones.
pub fn attention_by_shape(model: &ModelShape, sequence_length: u64) -> f64 {
    let width = (model.head_dim + model.value_dim()) as f64 / 2.0;
    let by_width = 2.0 / (1.0 + HEAD / width);
    1.0 / (1.0 / by_width + COST_OF_TOKEN / sequence_length as f64)
}

/// How many kernels compute in a step of one stage that holds all layers, without the optimizer's.
pub fn kernels_per_step(
    model: &ModelShape,
    device: &Device,
    assumptions: &Assumptions,
    layout: &ParallelLayout,
) -> f64 {
    let computed =
        Compute::of(model, device, assumptions, layout).of_stage(model.layers_of(0..model.layers), true, true);
    layout.micro_batches as f64 * computed.kernels
}

/// What a device does: how long its kernels take, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Busy {
    seconds: f64,
    kernels: f64,
}

impl Busy {
    /// How long it takes, with the gaps between kernels, or as long as the host needs to launch them.
    pub(crate) fn seconds(self, assumptions: &Assumptions) -> f64 {
        let Busy { seconds, kernels } = self;
        (seconds + kernels * assumptions.kernel_gap).max(kernels * assumptions.launch)
    }
}

impl Add for Busy {
    type Output = Busy;

    fn add(self, other: Busy) -> Busy {
        Busy { seconds: self.seconds + other.seconds, kernels: self.kernels + other.kernels }
    }
}

impl AddAssign for Busy {
    fn add_assign(&mut self, other: Busy) {
        *self = *self + other;
    }
}

impl Mul<f64> for Busy {
    type Output = Busy;

    fn mul(self, times: f64) -> Busy {
        Busy { seconds: self.seconds * times, kernels: self.kernels * times }
    }
}

/// What a rank computes for one micro-batch: forward, backward, and what it computes again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compute {
    pub(crate) embedding: Busy,
    /// A layer that has no experts.
    pub(crate) dense: Busy,
    /// One that has.
    pub(crate) sparse: Busy,
    /// What of either is attention.
    pub(crate) attention: Busy,
    pub(crate) head: Busy,
}

impl Compute {
    pub(crate) fn of(
        model: &ModelShape,
        device: &Device,
        assumptions: &Assumptions,
        layout: &ParallelLayout,
    ) -> Compute {
        let rank = RankWork { model, device, assumptions, layout };
        let (first, last) = model.kinds_of_layers();
        let (dense, sparse) = (rank.layer(first), rank.layer(last));
        let [forward, backward] = rank.attention();
        let again = if layout.recompute == Recompute::None { Busy::default() } else { forward };
        let attention = forward + backward + again;
        Compute { embedding: rank.embedding(), dense, sparse, attention, head: rank.head() }
    }

    /// All that a stage does.
    pub(crate) fn of_stage(&self, layers: Layers, is_first: bool, is_last: bool) -> Busy {
        let ends = [(is_first, self.embedding), (is_last, self.head)];
        let ends = ends.into_iter().filter_map(|(is_there, end)| is_there.then_some(end));
        ends.fold(self.dense * layers.dense as f64 + self.sparse * layers.sparse as f64, Add::add)
    }
}

/// One kind of work, forward and backward.
type BothWays = [Busy; 2];

/// What attention multiplies by, before and after it.
struct Projections {
    input: BothWays,
    output: BothWays,
}

struct RankWork<'a> {
    model: &'a ModelShape,
    device: &'a Device,
    assumptions: &'a Assumptions,
    layout: &'a ParallelLayout,
}

impl RankWork<'_> {
    /// What a layer does: forward, backward, and again.
    fn layer(&self, layer: u64) -> Busy {
        let attention = self.attention();
        let (projections, network, passing) = (self.projections(), self.network(layer), self.passing());
        let [forward, backward] = [0, 1]
            .map(|way| projections.input[way] + attention[way] + projections.output[way] + network[way] + passing[way]);
        let again = match (self.layout.recompute, self.assumptions.attention) {
            (Recompute::None, _) => Busy::default(),
            (Recompute::Selective, Attention::Naive) => attention[0],
            // From the output of the norm: queries, keys and values too.
            (Recompute::Selective, Attention::Flash) => projections.input[0] + attention[0],
            (Recompute::Full, _) => forward,
        };
        forward + backward + again
    }

    fn peak(&self) -> f64 {
        self.device.peaks.of(self.layout.precision)
    }

    fn element(&self) -> f64 {
        self.layout.precision.bytes() as f64
    }

    fn tokens(&self) -> u64 {
        self.layout.micro_batch_tokens()
    }

    /// Kernels that read and write so many bytes for each token.
    fn moved(&self, kernels: u64, bytes_per_token: f64) -> Busy {
        let rate = self.device.memory_bandwidth * self.assumptions.memory_efficiency;
        Busy { seconds: bytes_per_token * self.tokens() as f64 / rate, kernels: kernels as f64 }
    }

    /// One product of m × k by k × n.
    fn product(&self, m: u64, n: u64, k: u64) -> Busy {
        self.products_at_once(1, [m, n, k])
    }

    /// So many products of m × k by k × n, in one kernel.
    fn products_at_once(&self, count: u64, [m, n, k]: [u64; 3]) -> Busy {
        let count = count as f64;
        let tiles = count * m.div_ceil(TILE) as f64 * n.div_ceil(TILE) as f64;
        let used = (tiles / f64::from(self.device.multiprocessors)).min(1.0);
        let [m, n, k] = [m, n, k].map(|side| side as f64);
        let computing = 2.0 * count * m * n * k / (self.peak() * self.assumptions.compute_efficiency * used);
        let bytes = self.element() * count * (m * k + k * n + m * n);
        let waiting = bytes / (self.device.memory_bandwidth * self.assumptions.memory_efficiency);
        Busy { seconds: computing.max(waiting), kernels: 1.0 }
    }

    /// Products of so many networks: small ones at once, as they would leave most of the device idle.
    fn products(&self, count: u64, sides: [u64; 3]) -> Busy {
        let [m, n, k] = sides.map(|side| side as f64);
        if 2.0 * m * n * k <= MOST_FLOPS_AT_ONCE {
            return self.products_at_once(count, sides);
        }
        self.products_at_once(1, sides) * count as f64
    }

    /// Multiplying tokens by a matrix, and what that needs backward: the gradients of its input and of itself.
    fn matrix(&self, tokens: u64, outputs: u64, inputs: u64) -> BothWays {
        self.matrices(1, tokens, outputs, inputs)
    }

    /// The same for so many matrices, each with its tokens. Gradients of matrices are computed one after the other.
    fn matrices(&self, count: u64, tokens: u64, outputs: u64, inputs: u64) -> BothWays {
        let gradients = self.product(outputs, inputs, tokens) * count as f64;
        [self.products(count, [tokens, outputs, inputs]), self.products(count, [tokens, inputs, outputs]) + gradients]
    }

    fn projections(&self) -> Projections {
        let (model, t) = (self.model, self.layout.tp);
        let stacked = (model.query_width() + 2 * model.kv_width()).div_ceil(t);
        Projections {
            input: match model.latent {
                Some(latent) => self.latent(latent),
                None => self.matrix(self.tokens(), stacked, model.hidden),
            },
            output: self.matrix(self.tokens(), model.hidden, model.attended_width().div_ceil(t)),
        }
    }

    /// Down to narrow vectors, with this rank's tokens; their norms; and up to its heads.
    fn latent(&self, latent: Latent) -> BothWays {
        let (model, layout) = (self.model, self.layout);
        let (tokens, shares) = (self.tokens(), layout.token_shares());
        let down = self.matrix(tokens.div_ceil(shares), latent.down(), model.hidden);
        let queries = latent.query_rank.unwrap_or(model.hidden);
        let queries = self.matrix(tokens, model.query_width().div_ceil(layout.tp), queries);
        let keys = self.matrix(tokens, latent.up(model).div_ceil(layout.tp), latent.kv_rank);
        let bytes = latent.normed() as f64 / shares as f64 * self.element();
        let norms = 1 + u64::from(latent.query_rank.is_some());
        let normed = [self.moved(norms, 2.0 * bytes), self.moved(norms, 4.0 * bytes)];
        [0, 1].map(|way| down[way] + queries[way] + keys[way] + normed[way])
    }

    fn attention(&self) -> BothWays {
        let (model, t) = (self.model, self.layout.tp as f64);
        let (length, tokens) = (self.layout.sequence_length as f64, self.tokens() as f64);
        let (query, output) = (model.query_width() as f64 / t, model.attended_width() as f64 / t);
        // Products as wide as queries, and as results.
        let at = |[queries, outputs]: [f64; 2], efficiency: f64, kernels: f64| Busy {
            seconds: (queries * query + outputs * output) * length * tokens / (self.peak() * efficiency),
            kernels,
        };
        match self.assumptions.attention {
            Attention::Flash => {
                let efficiency =
                    self.assumptions.attention_efficiency * attention_by_shape(model, self.layout.attended_length());
                let blocks = self.layout.attended_blocks() as f64;
                let [forward, backward] = self.merging();
                [at([1.0, 1.0], efficiency, blocks) + forward, at([3.0, 2.0], efficiency, 5.0 * blocks) + backward]
            }
            Attention::Naive => {
                let efficiency = self.assumptions.compute_efficiency;
                let scores = model.heads as f64 / t * length;
                // Forward: scores are written; softmax and dropout each read and write, with a byte of mask; the result is
                // read. Backward: its gradient is written, goes back through both, and is read for queries and keys.
                let [forward, backward] = [6.0, 8.0].map(|times| times * self.element() + 1.0);
                [
                    at([2.0, 2.0], efficiency, 2.0) + self.moved(2, scores * forward),
                    at([4.0, 4.0], efficiency, 4.0) + self.moved(2, scores * backward),
                ]
            }
        }
    }

    /// Where a rank has parts of sequences: bringing together queries and keys of each block, and adding up what it gives.
    fn merging(&self) -> BothWays {
        if self.layout.cp == 1 {
            return BothWays::default();
        }
        let (model, t) = (self.model, self.layout.tp as f64);
        let (query, output) = (model.query_width() as f64 / t, model.attended_width() as f64 / t);
        let keys = (model.kv_width() + model.value_width()) as f64 / t;
        let blocks = self.layout.attended_blocks();
        // A block has half of the tokens here.
        let element = self.element() * blocks as f64 / 2.0;
        [
            self.moved(3 * blocks, element * (2.0 * (query + keys) + 3.0 * output)),
            self.moved(4 * blocks, element * (2.0 + 3.0) * (query + keys)),
        ]
    }

    /// The network that all tokens of a layer go through, and its experts.
    fn network(&self, layer: u64) -> BothWays {
        let dense = self.model.dense_width(layer);
        let dense = if dense > 0 { self.networks(1, self.tokens(), dense) } else { BothWays::default() };
        let experts = self.model.layer_experts(layer).map_or_else(BothWays::default, |experts| self.experts(experts));
        [0, 1].map(|way| dense[way] + experts[way])
    }

    /// The experts on this rank, each with its share of the tokens of all ranks that share them; the router; what sorts tokens by
    /// expert and puts them back; and, forward, the host that has to know how many there are.
    fn experts(&self, experts: Experts) -> BothWays {
        let (model, ep) = (self.model, self.layout.ep);
        let tokens = (self.tokens() * experts.top_k * ep).div_ceil(experts.count);
        let networks = self.networks(experts.count / ep, tokens, model.ffn);
        let router = self.matrix(self.tokens(), experts.count, model.hidden);
        let rows = 2.0 * self.element() * (experts.top_k * model.hidden) as f64;
        let read = Busy { seconds: READING_CHOICES, kernels: 0.0 };
        let [forward, backward] = [0, 1].map(|way| networks[way] + router[way] + self.moved(2, 2.0 * rows));
        [forward + read, backward]
    }

    /// So many networks of a width, each with so many tokens.
    fn networks(&self, count: u64, tokens: u64, width: u64) -> BothWays {
        let model = self.model;
        let inner = width.div_ceil(self.layout.tp);
        let (stacked, [forward, backward]) = match model.feed_forward {
            FeedForward::Gated => (2, [3.0, 5.0]),
            FeedForward::Plain => (1, [2.0, 3.0]),
        };
        let up = self.matrices(count, tokens, stacked * inner, model.hidden);
        let down = self.matrices(count, tokens, model.hidden, inner);
        let element = self.element() * (count * tokens * inner) as f64 / self.tokens() as f64;
        let activation = [self.moved(1, forward * element), self.moved(1, backward * element)];
        [0, 1].map(|way| up[way] + down[way] + activation[way])
    }

    /// Norms, additions and rotation: what passes by the matrices. Backward, additions are part of the norms.
    fn passing(&self) -> BothWays {
        let (model, layout, element) = (self.model, self.layout, self.element());
        let hidden = model.hidden as f64 / layout.token_shares() as f64;
        let heads = (model.query_width() + model.kv_width()) as f64 / layout.tp as f64;
        let mut ways = [self.moved(4, 10.0 * hidden * element), self.moved(4, 8.0 * hidden * element)];
        if model.learned_positions.is_none() {
            ways.iter_mut().for_each(|way| *way += self.moved(1, 2.0 * heads * element));
        }
        if model.qk_norm {
            ways[0] += self.moved(1, 2.0 * heads * element);
            ways[1] += self.moved(1, 3.0 * heads * element);
        }
        if self.assumptions.attention == Attention::Naive {
            // Dropout, twice, with a byte of mask.
            ways.iter_mut().for_each(|way| *way += self.moved(2, 2.0 * hidden * (2.0 * element + 1.0)));
        }
        ways
    }

    fn embedding(&self) -> Busy {
        let hidden = self.model.hidden as f64 / self.layout.token_shares() as f64;
        self.moved(2, 5.0 * hidden * self.element())
    }

    /// The final norm, the output projection, and the loss.
    fn head(&self) -> Busy {
        let (model, layout, element) = (self.model, self.layout, self.element());
        let vocabulary = model.vocabulary.div_ceil(layout.tp);
        let [forward, backward] = self.matrix(self.tokens(), vocabulary, model.hidden);
        let norm = self.moved(2, 6.0 * model.hidden as f64 / layout.token_shares() as f64 * element);
        forward + backward + norm + self.moved(3, 4.0 * vocabulary as f64 * element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;

    /// On an H200, without gaps: what a layer of Llama 3.2 1B takes, in seconds.
    fn layer(layout: ParallelLayout, change: impl Fn(&mut Assumptions)) -> Busy {
        let (model, device) = (ModelShape::preset("llama-1b").unwrap(), Device::named("h200").unwrap());
        let mut assumptions = Assumptions { kernel_gap: 0.0, launch: 0.0, ..Assumptions::of(device) };
        change(&mut assumptions);
        Compute::of(&model, device, &assumptions, &layout).dense
    }

    fn close(one: f64, two: f64) -> bool {
        (one / two - 1.0).abs() < 1e-9
    }

    const TOKENS: f64 = 4096.0;
    const EFFICIENCY: f64 = 0.62;

    fn base() -> ParallelLayout {
        ParallelLayout { sequence_length: 2048, micro_batch: 2, ..ParallelLayout::default() }
    }

    #[test]
    fn a_layer_is_products_attention_and_what_memory_gives() {
        // Queries of 2048, keys and values of 512 each, output, and a network of 8192 with a gate.
        let matrices = 2048.0 * (3072.0 + 2048.0 + 3.0 * 8192.0);
        let products = 6.0 * matrices * TOKENS / (0.75 * 989.4e12);
        // Heads of 64 take as many exponentials as heads of 128 do for twice the FLOPs; and tokens have a cost of their own.
        let attention = 7.0 * 2048.0 * 2048.0 * TOKENS / (EFFICIENCY / (1.5 + 1900.0 / 2048.0) * 989.4e12);
        let moved = 2.0 * (18.0 * 2048.0 + 4.0 * (2048.0 + 512.0) + 8.0 * 8192.0) * TOKENS / (0.8 * 4800e9);
        let busy = layer(base(), |_| {});
        assert!(close(busy.seconds, products + attention + moved), "{busy:?}");
        // Four products forward and eight backward; attention in one and in five; six others each way.
        assert_eq!(busy.kernels, 30.0);
    }

    #[test]
    fn what_is_computed_again_is_a_forward_pass() {
        let at = |recompute| layer(ParallelLayout { recompute, ..base() }, |_| {});
        let (none, selective, full) = (at(Recompute::None), at(Recompute::Selective), at(Recompute::Full));
        assert_eq!([none.kernels, selective.kernels, full.kernels], [30.0, 32.0, 41.0]);
        let products = 2.0 * 2048.0 * 3072.0 * TOKENS / (0.75 * 989.4e12);
        let attention = 2.0 * 2048.0 * 2048.0 * TOKENS / (EFFICIENCY / (1.5 + 1900.0 / 2048.0) * 989.4e12);
        assert!(close(selective.seconds - none.seconds, products + attention));
        assert!(full.seconds > selective.seconds);
    }

    #[test]
    fn few_tokens_do_not_fill_a_device() {
        let small = layer(ParallelLayout { sequence_length: 128, ..ParallelLayout::default() }, |_| {});
        // A 32nd of the tokens; every product still reads or writes its whole matrix.
        let matrices = 2048.0 * (3072.0 + 2048.0 + 3.0 * 8192.0);
        assert!(small.seconds > 3.0 * 2.0 * matrices / (0.8 * 4800e9), "{small:?}");
        assert!(small.seconds > 3.0 * layer(base(), |_| {}).seconds / 32.0);
    }

    #[test]
    fn kernels_have_gaps_and_are_launched_first() {
        let device = Device::named("h200").unwrap();
        let slow = Assumptions { kernel_gap: 3e-6, launch: 0.0, ..Assumptions::of(device) };
        let busy = Busy { seconds: 1e-3, kernels: 100.0 };
        assert!(close(busy.seconds(&slow), 1.3e-3));
        assert!(close(busy.seconds(&Assumptions { launch: 20e-6, ..slow }), 2e-3), "the host is slower");
    }

    #[test]
    fn a_square_of_scores_is_read_and_written() {
        let naive = |sequence_length| {
            let layout = ParallelLayout { sequence_length, micro_batch: 1, ..base() };
            layer(layout, |assumptions| assumptions.attention = Attention::Naive).seconds
        };
        let per_token = |length: u64| naive(length) / length as f64;
        // A head reads and writes each score 14 times in bf16, and two masks; and both products are done three times.
        let scores = 32.0 * (14.0 * 2.0 + 2.0) / (0.8 * 4800e9) + 12.0 * 2048.0 / (0.75 * 989.4e12);
        assert!(close(per_token(8192) - per_token(4096), 4096.0 * scores));
    }

    #[test]
    fn fp32_moves_twice_the_bytes_at_its_own_peak() {
        let fp32 = ParallelLayout { precision: Precision::Fp32, gradients: Precision::Fp32, ..base() };
        assert!(layer(fp32, |_| {}).seconds > 10.0 * layer(base(), |_| {}).seconds);
    }
}
