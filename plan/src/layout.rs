//! How a run is spread over ranks: a grid of stages, replicas, parts of sequences and tensor shards.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    communication::Axis,
    context::{CHUNKS_OF_RANK, ContextExchange},
    error::PlanError,
    schedule::Schedule,
    shape::ModelShape,
};

/// No dimension of a layout is larger than this.
const MOST: u64 = 1 << 24;
/// Nor are the tokens of a micro-batch.
const MOST_TOKENS: u64 = 1 << 40;
/// Nor those of a step, over all replicas.
const MOST_TOKENS_PER_STEP: u128 = 1 << 62;
/// Nor the grid.
const MOST_RANKS: u128 = 1 << 62;

/// How a run is spread over ranks, and how it trains there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelLayout {
    /// Replicas that each see other data.
    pub dp: u64,
    /// Ranks that share each matrix.
    pub tp: u64,
    /// Whether these share the tokens between matrices too: norms, and what passes by them.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// Ranks that each have a part of every sequence.
    #[serde(default = "one")]
    pub cp: u64,
    /// How these come by each other's keys and values.
    #[serde(default)]
    pub context: ContextExchange,
    /// Replicas, or parts of sequences, that share the experts: each holds some of them, and tokens go where theirs are.
    #[serde(default = "one")]
    pub ep: u64,
    /// Stages that each hold some of the layers.
    pub pp: u64,
    /// What the replicas share instead of each holding it.
    pub zero: Zero,
    /// In how many groups they share it, each of which has all of it between its replicas: more than one is hybrid sharding.
    #[serde(default = "one_group")]
    pub dp_replicate: u64,
    /// How many units are gathered ahead of the one that computes, where replicas share the parameters.
    #[serde(default = "usual_prefetch")]
    pub prefetch: u64,
    /// Layers of a unit, which replicas gather, reduce and free at once.
    #[serde(default = "one")]
    pub unit_layers: u64,
    /// In which order the stages work.
    pub schedule: Schedule,
    /// Chunks of layers on a stage: one, unless the schedule is interleaved or goes both ways.
    pub chunks: u64,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a step, on each replica.
    pub micro_batches: u64,
    /// Tokens of a sequence.
    pub sequence_length: u64,
    /// What is computed again instead of being kept.
    pub recompute: Recompute,
    /// What parameters and activations are in.
    pub precision: Precision,
    /// What gradients are in.
    pub gradients: Precision,
}

/// What older runs have of what they do not say.
fn one() -> u64 {
    1
}

/// What data-parallel replicas share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Zero {
    /// Nothing: each holds everything.
    #[default]
    Off,
    /// The optimizer's state.
    One,
    /// And the gradients.
    Two,
    /// And the parameters.
    Three,
}

impl Zero {
    /// Every stage.
    pub const ALL: [Zero; 4] = [Zero::Off, Zero::One, Zero::Two, Zero::Three];
}

impl From<Zero> for u8 {
    fn from(zero: Zero) -> u8 {
        zero as u8
    }
}

impl TryFrom<u8> for Zero {
    type Error = String;

    fn try_from(stage: u8) -> Result<Zero, String> {
        Zero::ALL.get(usize::from(stage)).copied().ok_or(format!("ZeRO stages are 0 to 3, not {stage}"))
    }
}

/// What is computed again in the backward pass instead of being kept from the forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// Attention.
    Selective,
    /// Every layer, from its input.
    Full,
}

impl Recompute {
    /// Every choice.
    pub const ALL: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Recompute::None => "none",
            Recompute::Selective => "selective",
            Recompute::Full => "full",
        }
    }
}

/// A floating-point format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Two bytes; the optimizer then keeps a master copy of the weights in four.
    #[default]
    Bf16,
    /// Four bytes.
    Fp32,
}

impl Precision {
    /// Every format.
    pub const ALL: [Precision; 2] = [Precision::Bf16, Precision::Fp32];

    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            Precision::Bf16 => 2,
            Precision::Fp32 => 4,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Bf16 => "bf16",
            Precision::Fp32 => "fp32",
        }
    }
}

/// Where a rank is in the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Coordinates {
    /// Its pipeline stage.
    pub stage: u64,
    /// Its replica.
    pub dp: u64,
    /// Its part of every sequence.
    #[serde(default)]
    pub cp: u64,
    /// Its tensor shard.
    pub tp: u64,
}

impl Coordinates {
    /// Whether it is the first of those that hold the same weights.
    pub fn is_first_replica(self) -> bool {
        (self.dp, self.cp) == (0, 0)
    }
}

impl Default for ParallelLayout {
    /// One rank, one micro-batch.
    fn default() -> ParallelLayout {
        ParallelLayout {
            dp: 1,
            tp: 1,
            sequence_parallel: false,
            cp: 1,
            context: ContextExchange::Ring,
            ep: 1,
            pp: 1,
            zero: Zero::Off,
            dp_replicate: one_group(),
            prefetch: usual_prefetch(),
            unit_layers: 1,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            micro_batch: 1,
            micro_batches: 1,
            sequence_length: 1024,
            recompute: Recompute::None,
            precision: Precision::Bf16,
            gradients: Precision::Bf16,
        }
    }
}

/// All replicas share.
fn one_group() -> u64 {
    1
}

/// While a unit computes, the next one comes in.
fn usual_prefetch() -> u64 {
    1
}

impl ParallelLayout {
    /// How many ranks there are.
    pub fn world_size(&self) -> u64 {
        self.replicas() * self.tp * self.pp
    }

    /// How many ranks hold the same weights and see other tokens: they add up gradients, and share what ZeRO shards.
    pub fn replicas(&self) -> u64 {
        self.dp * self.cp
    }

    /// Sequences of a step, over all replicas.
    pub fn global_batch(&self) -> u64 {
        self.micro_batch * self.micro_batches * self.dp
    }

    /// Tokens of a micro-batch that a rank has.
    pub fn micro_batch_tokens(&self) -> u64 {
        self.micro_batch * self.sequence_length / self.cp
    }

    /// In how many parts tensor ranks share the tokens between matrices.
    pub fn token_shares(&self) -> u64 {
        if self.sequence_parallel { self.tp } else { 1 }
    }

    /// Tokens of a step, over all replicas.
    pub fn tokens_per_step(&self) -> u64 {
        self.global_batch() * self.sequence_length
    }

    /// Where a rank is. Tensor shards are nearest to each other, then parts of a sequence, then replicas, then stages.
    pub fn coordinates(&self, rank: u64) -> Coordinates {
        let (of_tensor, of_context) = (rank / self.tp, rank / self.tp / self.cp);
        Coordinates {
            stage: of_context / self.dp,
            dp: of_context % self.dp,
            cp: of_tensor % self.cp,
            tp: rank % self.tp,
        }
    }

    /// Who is there.
    pub fn rank(&self, at: Coordinates) -> u64 {
        ((at.stage * self.dp + at.dp) * self.cp + at.cp) * self.tp + at.tp
    }

    /// Along which axis replicas talk.
    pub fn replica_axis(&self) -> Axis {
        if self.cp > 1 { Axis::DataContext } else { Axis::Data }
    }

    /// The ranks that share this rank's matrices.
    pub fn tensor_group(&self, rank: u64) -> Vec<u64> {
        let at = self.coordinates(rank);
        (0..self.tp).map(|tp| self.rank(Coordinates { tp, ..at })).collect()
    }

    /// The ranks that have parts of the same sequences.
    pub fn context_group(&self, rank: u64) -> Vec<u64> {
        let at = self.coordinates(rank);
        (0..self.cp).map(|cp| self.rank(Coordinates { cp, ..at })).collect()
    }

    /// The ranks that hold the same weights as this one and see other tokens.
    pub fn data_group(&self, rank: u64) -> Vec<u64> {
        let at = self.coordinates(rank);
        let replicas = (0..self.dp).flat_map(|dp| (0..self.cp).map(move |cp| Coordinates { dp, cp, ..at }));
        replicas.map(|at| self.rank(at)).collect()
    }

    /// How many ranks share what ZeRO lets them share.
    pub fn shards(&self) -> u64 {
        self.replicas() / self.dp_replicate
    }

    /// The ranks that share this rank's weights, or what belongs to them: replicas that follow each other.
    pub fn shard_group(&self, rank: u64) -> Vec<u64> {
        let group = self.coordinates(rank).dp / (self.dp / self.dp_replicate);
        let shards = self.shards() as usize;
        self.data_group(rank)[group as usize * shards..][..shards].to_vec()
    }

    /// The ranks that hold the same share of them, one of each group.
    pub fn replicate_group(&self, rank: u64) -> Vec<u64> {
        let (at, size) = (self.coordinates(rank), self.dp / self.dp_replicate);
        let of = |group| self.rank(Coordinates { dp: group * size + at.dp % size, ..at });
        (0..self.dp_replicate).map(of).collect()
    }

    /// The ranks a micro-batch of this rank goes through.
    pub fn pipeline_group(&self, rank: u64) -> Vec<u64> {
        let at = self.coordinates(rank);
        (0..self.pp).map(|stage| self.rank(Coordinates { stage, ..at })).collect()
    }

    /// Layers of a stage.
    pub fn stage_layers(&self, model: &ModelShape, stage: u64) -> u64 {
        (0..self.chunks)
            .map(|chunk| self.chunk_layers(model, stage, chunk))
            .map(|layers| layers.end - layers.start)
            .sum()
    }

    /// Layers of a chunk of a stage: the schedule says which piece of the model it is. Where pieces cannot be equal, those that end before the last one have a layer more: the last has the head as well, and what is early is kept longer.
    pub fn chunk_layers(&self, model: &ModelShape, stage: u64, chunk: u64) -> Range<u64> {
        let pieces = self.schedule.pieces(self.pp, self.chunks);
        let (layers, more) = (model.layers / pieces, model.layers % pieces);
        let without_more = (pieces - 1).saturating_sub(more);
        let begin = |piece: u64| piece * layers + piece.saturating_sub(without_more).min(more);
        let piece = self.schedule.piece(stage, self.pp, chunk);
        begin(piece)..begin(piece + 1)
    }

    /// Whether a stage begins a way through the model: it has the embedding.
    pub fn has_embedding(&self, stage: u64) -> bool {
        self.holds(stage, 0)
    }

    /// Whether a stage ends a way through the model: it has the head.
    pub fn has_head(&self, stage: u64) -> bool {
        self.holds(stage, self.schedule.pieces(self.pp, self.chunks) - 1)
    }

    fn holds(&self, stage: u64, piece: u64) -> bool {
        (0..self.chunks).any(|chunk| self.schedule.piece(stage, self.pp, chunk) == piece)
    }

    /// How many micro-batches of a step go through each chunk: half of them, where they come from both ends.
    pub fn through_a_chunk(&self) -> u64 {
        if self.schedule == Schedule::DualPipe { self.micro_batches / 2 } else { self.micro_batches }
    }

    /// How often a layer goes forward for each time it goes backward.
    pub(crate) fn forwards(&self) -> u64 {
        if self.recompute == Recompute::Full { 2 } else { 1 }
    }

    /// Says what does not work, whatever the model. What has passed can be counted without overflow.
    pub fn check_sizes(&self) -> Result<(), PlanError> {
        if self.prefetch > MOST {
            return Err(PlanError::Layout(format!("prefetch is {}; the maximum is {MOST}", self.prefetch)));
        }
        let dimensions = [
            ("dp", self.dp),
            ("tp", self.tp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("pp", self.pp),
            ("dp-replicate", self.dp_replicate),
            ("unit-layers", self.unit_layers),
            ("chunks", self.chunks),
            ("micro-batch", self.micro_batch),
            ("micro-batches", self.micro_batches),
            ("sequence length", self.sequence_length),
        ];
        for (what, value) in dimensions {
            if value == 0 {
                return Err(PlanError::Layout(format!("{what} is 0")));
            }
            if value > MOST {
                return Err(PlanError::Layout(format!("{what} is {value}; the maximum is {MOST}")));
            }
        }
        if self.micro_batch_tokens() > MOST_TOKENS {
            return Err(PlanError::TooLarge("the number of tokens per micro-batch"));
        }
        let product = |sizes: &[u64]| sizes.iter().map(|size| u128::from(*size)).product::<u128>();
        if product(&[self.dp, self.cp, self.tp, self.pp]) > MOST_RANKS {
            return Err(PlanError::TooLarge("the number of ranks"));
        }
        if product(&[self.dp, self.micro_batches, self.micro_batch, self.sequence_length]) > MOST_TOKENS_PER_STEP {
            return Err(PlanError::TooLarge("the number of tokens per step"));
        }
        Ok(())
    }

    /// Says what does not work, with this model.
    pub fn check(&self, model: &ModelShape) -> Result<(), PlanError> {
        self.check_sizes()?;
        let wrong = |why: String| Err(PlanError::Layout(why));
        for (what, whole) in [("heads", model.heads), ("kv_heads", model.kv_heads), ("of ffn", model.ffn)] {
            if !whole.is_multiple_of(self.tp) {
                return wrong(format!("{whole} {what} are not divisible by tp {}", self.tp));
            }
        }
        let (length, pieces) = (self.sequence_length, CHUNKS_OF_RANK * self.cp);
        if self.cp > 1 && !length.is_multiple_of(pieces) {
            return wrong(format!(
                "{length} tokens per sequence are not divisible into {pieces} chunks, {CHUNKS_OF_RANK} for each of cp {} ranks",
                self.cp
            ));
        }
        if self.dp_replicate > 1 {
            let (dp, groups) = (self.dp, self.dp_replicate);
            if self.zero == Zero::Off {
                return wrong(format!("{groups} groups of replicas share nothing without ZeRO"));
            }
            if !dp.is_multiple_of(groups) || dp == groups {
                return wrong(format!("dp {dp} does not make {groups} equal groups of at least 2 replicas"));
            }
        }
        self.check_experts(model)?;
        if self.sequence_parallel && self.tp < 2 {
            return wrong("sequence parallelism needs at least 2 tensor ranks".into());
        }
        let tokens = self.micro_batch_tokens();
        if !tokens.is_multiple_of(self.token_shares()) {
            return wrong(format!("{tokens} tokens per micro-batch are not divisible by tp {}", self.tp));
        }
        let (layers, pp, chunks) = (model.layers, self.pp, self.chunks);
        if layers < self.schedule.pieces(pp, chunks) {
            let chunks = if chunks > 1 && self.schedule != Schedule::DualPipe {
                format!(" times {chunks} chunks")
            } else {
                String::new()
            };
            return wrong(format!("{layers} layers are too few for pp {pp}{chunks}"));
        }
        self.check_units(model)?;
        if self.schedule == Schedule::Interleaved {
            if pp < 2 || chunks < 2 {
                return wrong("an interleaved schedule needs at least 2 stages and 2 chunks".into());
            }
            if !self.micro_batches.is_multiple_of(pp) {
                return wrong(format!("an interleaved schedule needs a multiple of pp {pp} micro-batches"));
            }
        } else if self.schedule.is_dual() {
            self.schedule.check_both_ways(pp, self.micro_batches, chunks)?;
        } else if chunks != 1 {
            return wrong(format!("{chunks} chunks need an interleaved schedule"));
        }
        if self.schedule == Schedule::ZeroBubble && pp < 2 {
            return wrong("a zero-bubble schedule needs at least 2 stages".into());
        }
        if self.precision == Precision::Fp32 && self.gradients != Precision::Fp32 {
            return wrong("fp32 parameters need fp32 gradients".into());
        }
        match model.learned_positions {
            Some(positions) if positions < self.sequence_length => {
                wrong(format!("the model has {positions} learned positions, fewer than {}", self.sequence_length))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tiny_divides_as_the_contract_says() {
        let model = ModelShape::preset("tiny").unwrap();
        let base = ParallelLayout { micro_batches: 4, ..ParallelLayout::default() };
        assert_eq!(ParallelLayout { tp: 4, pp: 4, ..base }.check(&model), Ok(()));
        let interleaved = ParallelLayout { pp: 2, chunks: 2, schedule: Schedule::Interleaved, ..base };
        assert_eq!(interleaved.check(&model), Ok(()));
        assert_eq!(model.vocabulary % 4, 0);
    }

    #[test]
    fn what_does_not_work_is_said() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let base = ParallelLayout::default();
        for (layout, why) in [
            (ParallelLayout { tp: 3, ..base }, "32 heads are not divisible by tp 3"),
            (ParallelLayout { tp: 16, ..base }, "8 kv_heads are not divisible by tp 16"),
            (ParallelLayout { pp: 33, ..base }, "32 layers are too few for pp 33"),
            (ParallelLayout { dp: 0, ..base }, "dp is 0"),
            (ParallelLayout { micro_batch: 1 << 30, ..base }, "micro-batch is 1073741824"),
            (ParallelLayout { chunks: 2, ..base }, "2 chunks need an interleaved schedule"),
            (
                ParallelLayout { schedule: Schedule::Interleaved, chunks: 2, ..base },
                "needs at least 2 stages and 2 chunks",
            ),
            (
                ParallelLayout { schedule: Schedule::Interleaved, chunks: 2, pp: 4, micro_batches: 6, ..base },
                "a multiple of pp 4 micro-batches",
            ),
            (ParallelLayout { schedule: Schedule::ZeroBubble, ..base }, "zero-bubble schedule needs at least 2 stages"),
            (ParallelLayout { precision: Precision::Fp32, ..base }, "fp32 parameters need fp32 gradients"),
            (
                ParallelLayout { cp: 3, sequence_length: 1000, ..base },
                "1000 tokens per sequence are not divisible into 6 chunks, 2 for each of cp 3 ranks",
            ),
            (ParallelLayout { sequence_parallel: true, ..base }, "needs at least 2 tensor ranks"),
            (ParallelLayout { schedule: Schedule::DualPipe, chunks: 2, pp: 5, ..base }, "an even number of stages"),
            (
                ParallelLayout { schedule: Schedule::DualPipeV, chunks: 2, pp: 4, micro_batches: 7, ..base },
                "dualpipev needs at least 8 micro-batches for pp 4",
            ),
            (ParallelLayout { dp: 4, dp_replicate: 2, ..base }, "share nothing without ZeRO"),
            (ParallelLayout { dp: 4, dp_replicate: 3, zero: Zero::One, ..base }, "dp 4 does not make 3 equal groups"),
            (ParallelLayout { dp: 4, dp_replicate: 4, zero: Zero::One, ..base }, "groups of at least 2 replicas"),
            (
                ParallelLayout { sequence_parallel: true, tp: 8, sequence_length: 1001, ..base },
                "1001 tokens per micro-batch are not divisible by tp 8",
            ),
        ] {
            let error = layout.check(&model).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let gpt = ModelShape::preset("gpt2-124m").unwrap();
        let error = ParallelLayout { sequence_length: 2048, ..base }.check(&gpt).unwrap_err().to_string();
        assert!(error.contains("1024 learned positions"), "{error}");
        assert_eq!(base.check(&model), Ok(()));
        let most = ParallelLayout { dp: MOST, micro_batches: MOST, sequence_length: MOST, ..base };
        for layout in [most, ParallelLayout { dp: MOST, tp: MOST, pp: MOST, ..base }] {
            assert!(matches!(layout.check_sizes(), Err(PlanError::TooLarge(_))), "{layout:?}");
        }
    }

    /// Llama 3 405B (Dubey et al., 2024): 126 layers, one less on the first and on the last of 16 stages.
    #[test]
    fn stages_that_cannot_be_equal_have_fewer_layers_at_both_ends() {
        let layers = |layers, pp, chunks| {
            let model = ModelShape { layers, ..ModelShape::preset("llama-405b").unwrap() };
            let layout = ParallelLayout { pp, chunks, ..ParallelLayout::default() };
            (0..pp).map(|stage| layout.stage_layers(&model, stage)).collect::<Vec<_>>()
        };
        assert_eq!(layers(126, 16, 1), [vec![7], vec![8; 14], vec![7]].concat());
        assert_eq!(layers(126, 16, 2), [vec![7], vec![8; 14], vec![7]].concat());
        assert_eq!(layers(32, 5, 1), [6, 6, 7, 7, 6]);
        assert_eq!(layers(8, 3, 1), [3, 3, 2]);
    }

    proptest! {
        #[test]
        fn every_layer_is_in_one_piece(layers in 1..200_u64, pp in 1..20_u64, chunks in 1..5_u64) {
            let model = ModelShape { layers, ..ModelShape::preset("tiny").unwrap() };
            let layout = ParallelLayout { pp, chunks, ..ParallelLayout::default() };
            let pieces = (0..chunks).flat_map(|chunk| (0..pp).map(move |stage| (stage, chunk)));
            let pieces: Vec<_> = pieces.map(|(stage, chunk)| layout.chunk_layers(&model, stage, chunk)).collect();
            prop_assert!(pieces.iter().cloned().flatten().eq(0..layers), "{pieces:?}");
            let lengths = || pieces.iter().map(|piece| piece.end - piece.start);
            prop_assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1, "{pieces:?}");
        }

        #[test]
        fn groups_are_slices_of_the_grid(dp in 1..5_u64, cp in 1..4_u64, tp in 1..5_u64, pp in 1..5_u64) {
            let layout = ParallelLayout { dp, cp, tp, pp, ..ParallelLayout::default() };
            for rank in 0..layout.world_size() {
                prop_assert_eq!(layout.rank(layout.coordinates(rank)), rank);
                for (group, size) in [
                    (layout.tensor_group(rank), tp),
                    (layout.context_group(rank), cp),
                    (layout.data_group(rank), dp * cp),
                    (layout.pipeline_group(rank), pp),
                ] {
                    prop_assert_eq!(group.len() as u64, size);
                    prop_assert!(group.contains(&rank) && group.is_sorted());
                }
                let tensor = layout.tensor_group(rank);
                prop_assert_eq!(tensor[0] + tp - 1, tensor[tp as usize - 1], "tensor shards are neighbours");
                prop_assert!(tensor.iter().all(|other| layout.tensor_group(*other) == tensor));
            }
        }
    }
}
