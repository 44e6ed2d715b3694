//! Context parallelism: each rank has a part of every sequence, and attends to the keys and values of all.
//!
//! A sequence is cut into twice as many chunks as there are ranks. Each rank has one from the front and one from the back, so that
//! all have as many keys before their queries:
//!
//! ```text
//! cp 3   │ 0 │ 1 │ 2 │ 2 │ 1 │ 0 │
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    communication::{Axis, Traffic},
    layout::{ParallelLayout, Recompute},
    shape::ModelShape,
};

/// Chunks of a sequence on each rank, where ranks share sequences.
pub const CHUNKS_OF_RANK: u64 = 2;

/// How ranks that share a sequence come by each other's keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextExchange {
    /// They go around: each rank attends to some while the next ones come.
    #[default]
    Ring,
    /// Every rank gathers all of them first.
    AllGather,
}

impl ContextExchange {
    /// Every way.
    pub const ALL: [ContextExchange; 2] = [ContextExchange::Ring, ContextExchange::AllGather];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ContextExchange::Ring => "ring",
            ContextExchange::AllGather => "all-gather",
        }
    }
}

impl ParallelLayout {
    /// Tokens of a chunk of a sequence: of all of it, where nobody shares it.
    pub fn chunk_tokens(&self) -> u64 {
        if self.cp > 1 { self.sequence_length / (CHUNKS_OF_RANK * self.cp) } else { self.sequence_length }
    }

    /// Where in a sequence the chunks begin that the part `index` of it has.
    pub fn chunk_starts(&self, index: u64) -> Vec<u64> {
        let chunks = match self.cp {
            1 => vec![0],
            cp => vec![index, CHUNKS_OF_RANK * cp - 1 - index],
        };
        chunks.into_iter().map(|chunk| chunk * self.chunk_tokens()).collect()
    }

    /// How often a rank attends with a chunk of queries to a chunk of keys.
    pub(crate) fn attended_blocks(&self) -> u64 {
        if self.cp > 1 { CHUNKS_OF_RANK * self.cp + 1 } else { 1 }
    }

    /// The length of sequences in which a token would cost attention as much as it does here: it pays for each block anew.
    pub fn attended_length(&self) -> u64 {
        if self.cp > 1 { self.sequence_length * CHUNKS_OF_RANK / self.attended_blocks() } else { self.sequence_length }
    }

    /// Bytes of a rank's keys and values of a micro-batch, in one layer.
    fn key_bytes(&self, model: &ModelShape) -> u64 {
        self.micro_batch_tokens() * (model.kv_width() + model.value_width()) / self.tp * self.precision.bytes()
    }

    /// Bytes that keys, values and their gradients take on the way, at most.
    pub(crate) fn context_buffer_bytes(&self, model: &ModelShape) -> u128 {
        let keys = u128::from(self.key_bytes(model));
        match (self.cp, self.context) {
            (1, _) => 0,
            // Those here and those that come; gradients that are made, that came, and that go.
            (_, ContextExchange::Ring) => 5 * keys,
            // All of them and all of their gradients, and this rank's.
            (cp, ContextExchange::AllGather) => (2 * u128::from(cp) + 1) * keys,
        }
    }
}

/// What ranks that share sequences send each other.
pub(crate) fn context_traffic(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Vec<Traffic> {
    let cp = layout.cp;
    if cp == 1 {
        return Vec::new();
    }
    let times = layout.through_a_chunk() * layout.stage_layers(model, stage);
    // Attention is computed again unless all of it is kept.
    let forwards = if layout.recompute == Recompute::None { 1 } else { 2 };
    let keys = layout.key_bytes(model);
    let of = |operation, count: u64, bytes: u64| {
        Traffic::new(Axis::Context, operation, cp, times * count, (times * count) as f64 * bytes as f64)
    };
    let mut traffic = match layout.context {
        // Keys and values go past everyone else; gradients come home in the end.
        ContextExchange::Ring => vec![of("send", (forwards + 1) * (cp - 1) + cp, keys)],
        ContextExchange::AllGather => {
            vec![of("all_gather", forwards + 1, cp * keys), of("reduce_scatter", 1, cp * keys)]
        }
    };
    traffic.extend(choices_traffic(model, layout, stage));
    traffic
}

/// How often each sequence chose each expert, which is summed over its parts wherever tokens choose: balance is a sequence's.
fn choices_traffic(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Option<Traffic> {
    let layers = layout.layers_of_stage(model, stage).sparse;
    let experts = model.experts.filter(|_| layers > 0)?;
    let count = layout.forwards() * layout.through_a_chunk() * layers;
    let bytes = count as f64 * layout.choice_count_bytes(experts) as f64;
    Some(Traffic::new(Axis::Context, "all_reduce", layout.cp, count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(cp: u64) -> ParallelLayout {
        ParallelLayout { cp, sequence_length: 24, ..ParallelLayout::default() }
    }

    #[test]
    fn each_chunk_is_on_one_rank_and_all_have_as_many_keys_before_them() {
        for cp in [2, 3, 4, 6] {
            let layout = layout(cp);
            let starts: Vec<Vec<u64>> = (0..cp).map(|index| layout.chunk_starts(index)).collect();
            let mut all = starts.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq((0..2 * cp).map(|chunk| chunk * layout.chunk_tokens())));
            assert!(starts.iter().all(|starts| starts.iter().sum::<u64>() == starts_of_first(&layout)), "{starts:?}");
        }
        assert_eq!((layout(1).chunk_starts(0), layout(1).chunk_tokens()), (vec![0], 24));
    }

    fn starts_of_first(layout: &ParallelLayout) -> u64 {
        layout.chunk_starts(0).iter().sum()
    }

    #[test]
    fn keys_go_around_and_gradients_come_home() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let base =
            ParallelLayout { cp: 4, tp: 2, sequence_length: 8192, micro_batches: 3, ..ParallelLayout::default() };
        let of = |layout: &ParallelLayout| -> Vec<(&'static str, u64, f64)> {
            let traffic = context_traffic(&model, layout, 0).into_iter();
            traffic.map(|traffic| (traffic.operation, traffic.count, traffic.bytes)).collect()
        };
        // 2048 tokens of 512 keys and as many values, in bf16; 32 layers of three micro-batches.
        let (keys, times) = (2048.0 * 1024.0 * 2.0, 3 * 32);
        assert_eq!(of(&base), [("send", times * (3 + 3 + 4), (times * 10) as f64 * keys)]);
        let again = ParallelLayout { recompute: Recompute::Selective, ..base };
        assert_eq!(of(&again)[0].1, times * (3 + 3 + 3 + 4));
        let gathered = ParallelLayout { context: ContextExchange::AllGather, ..base };
        assert_eq!(
            of(&gathered),
            [
                ("all_gather", 2 * times, 2.0 * times as f64 * 4.0 * keys),
                ("reduce_scatter", times, times as f64 * 4.0 * keys)
            ]
        );
        assert_eq!(of(&ParallelLayout { cp: 1, ..base }), []);
    }
}
