//! Where the parameters of a rank lie: one flat allocation, in units that are gathered, reduced and freed together.
//!
//! ```text
//! stage 0 of 2   │ embedding ░│ layer 0 ░│ layer 1 ░│
//! stage 1 of 2   │ layer 2 ░│ layer 3 ░│ head ░│ tied embedding ░│
//! stage 1 of 2   │ layer 2, layer 3 ░│ head ░│ tied embedding ░│        with units of two layers
//! ```
//!
//! Units lie in the order of the forward pass, chunk after chunk, and the tensors of a unit in the order of
//! [`ModelShape::tensors`]. Experts have an allocation of their own, with a unit for each layer that has them; the tensors of
//! one expert lie together. With ZeRO each unit is padded (`░`) to a multiple of the replicas that share it, so that each
//! replica's shard of it is of the same length. The copy of a tied embedding is as long as the
//! embedding's unit, learned positions and all, so that their shards are of the same rows.

use std::ops::Range;

use crate::{
    layout::{Coordinates, ParallelLayout, Zero},
    shape::ModelShape,
    shard::shard,
    tensors::{Part, Split, Tensor},
    units::AlikeLayers,
};

/// Where every parameter of a rank lies in its one flat allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// What is handled together, in the order of the forward pass; they partition the allocation.
    pub units: Vec<Unit>,
    /// The tensors, in the order in which they lie.
    pub slots: Vec<Slot>,
    /// Elements of the allocation, padding included.
    pub elements: u64,
}

/// What is gathered, reduced and freed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which part of the model it is, or begins with.
    pub part: Part,
    /// Which layers it is of.
    pub layers: Range<u64>,
    /// Which chunk of the stage it belongs to.
    pub chunk: u64,
    /// Where it lies, padding included.
    pub range: Range<u64>,
    /// Elements without padding.
    pub parameters: u64,
    /// Which of the slots are in it.
    pub slots: Range<usize>,
}

/// One tensor of the allocation: a rank's shard of a tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name, as in the layer.
    pub name: &'static str,
    /// Which part of the model it belongs to.
    pub part: Part,
    /// Which expert it belongs to; 0 where there is only one such tensor.
    pub copy: u64,
    /// Where it begins.
    pub offset: u64,
    /// Rows of the shard.
    pub rows: u64,
    /// Columns of the shard.
    pub columns: u64,
    /// The row of the whole tensor that the shard begins with.
    pub first_row: u64,
    /// The column of the whole tensor that the shard begins with.
    pub first_column: u64,
    /// Rows and columns of the whole tensor.
    pub whole: (u64, u64),
    /// Whether every tensor rank holds all of it.
    pub replicated: bool,
}

impl Unit {
    /// Elements, padding included.
    pub fn elements(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where in the allocation the shard `index` of `replicas` lies.
    pub fn shard(&self, replicas: u64, index: u64) -> Range<u64> {
        let shard = shard(self.elements(), replicas, index);
        self.range.start + shard.start..self.range.start + shard.end
    }
}

impl Slot {
    /// Elements of the shard.
    pub fn elements(&self) -> u64 {
        self.rows * self.columns
    }

    /// Where in the allocation it lies.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.elements()
    }

    fn of(tensor: &Tensor, part: Part, copy: u64, tp: u64, index: u64, offset: u64) -> Slot {
        let (mut rows, mut columns) = (0..tensor.rows, 0..tensor.columns);
        match tensor.split {
            None => {}
            Some(Split::Rows) => rows = shard(tensor.rows, tp, index),
            Some(Split::Columns) => columns = shard(tensor.columns, tp, index),
        }
        Slot {
            name: tensor.name,
            part,
            copy,
            offset,
            rows: rows.end - rows.start,
            columns: columns.end - columns.start,
            first_row: rows.start,
            first_column: columns.start,
            whole: (tensor.rows, tensor.columns),
            replicated: tensor.split.is_none(),
        }
    }
}

impl Placement {
    /// The placement of the rank at these coordinates, without experts. The layout must fit the model.
    pub fn of(model: &ModelShape, layout: &ParallelLayout, at: Coordinates) -> Placement {
        let ends = ModelShape { layers: 0, ..model.clone() }.tensors();
        let of = |part: Part| ends.iter().filter(|tensor| tensor.part == part).cloned().collect::<Vec<Tensor>>();
        let pieces = layout.schedule.pieces(layout.pp, layout.chunks);
        let mut placement = Placement::default();
        for chunk in 0..layout.chunks {
            let mut push =
                |parts: &[(Part, Vec<Tensor>)]| placement.push((layout, layout.shards()), chunk, parts, 0..1, at);
            let piece = layout.schedule.piece(at.stage, layout.pp, chunk);
            if piece == 0 {
                push(&[(Part::Embedding, of(Part::Embedding))]);
            }
            for unit in layout.alike_layers(model, at.stage, chunk).iter().flat_map(AlikeLayers::units) {
                let parts = unit.map(|layer| of_layer(model, layer, Part::Layer(layer)));
                push(&parts.collect::<Vec<_>>());
            }
            if piece + 1 == pieces {
                push(&[(Part::Head, of(Part::Head))]);
                if model.tied_embeddings && !layout.has_embedding(at.stage) {
                    push(&[(Part::TiedEmbedding, of(Part::Embedding))]);
                }
            }
        }
        placement
    }

    /// Where its experts lie: an allocation of their own, for other ranks hold the same.
    pub fn of_experts(model: &ModelShape, layout: &ParallelLayout, at: Coordinates) -> Placement {
        let mut placement = Placement::default();
        for chunk in 0..layout.chunks {
            for layer in layout.chunk_layers(model, at.stage, chunk) {
                let Some(experts) = model.layer_experts(layer) else { continue };
                let here = layout.experts_here(experts, at);
                let parts = [of_layer(model, layer, Part::Experts(layer))];
                placement.push((layout, layout.expert_replicas()), chunk, &parts, here, at);
            }
        }
        placement
    }

    /// The tensors of a unit.
    pub fn slots_of(&self, unit: &Unit) -> &[Slot] {
        &self.slots[unit.slots.clone()]
    }

    /// Those of one part of it.
    pub fn slots_of_part(&self, unit: &Unit, part: Part) -> &[Slot] {
        let mut parts = self.slots_of(unit).chunk_by(|one, next| one.part == next.part);
        parts.find(|slots| slots.iter().all(|slot| slot.part == part)).unwrap_or_default()
    }

    /// Adds a unit of these parts.
    fn push(
        &mut self,
        (layout, replicas): (&ParallelLayout, u64),
        chunk: u64,
        parts: &[(Part, Vec<Tensor>)],
        copies: Range<u64>,
        at: Coordinates,
    ) {
        let (start, first) = (self.elements, self.slots.len());
        let (mut end, mut parameters) = (start, 0);
        for (part, tensors) in parts {
            // Experts one after another, each with all its tensors.
            for (copy, tensor) in copies.clone().flat_map(|copy| tensors.iter().map(move |tensor| (copy, tensor))) {
                let slot = Slot::of(tensor, *part, copy, layout.tp, at.tp, end);
                end += slot.elements();
                // Only the matrix is used twice: what else is in the embedding's unit is padding in its copy's.
                if *part != Part::TiedEmbedding || tensor.name == "embedding" {
                    parameters += slot.elements();
                    self.slots.push(slot);
                }
            }
        }
        if layout.zero > Zero::Off {
            end = start + (end - start).next_multiple_of(replicas);
        }
        self.elements = end;
        let Some((part, _)) = parts.first() else { return };
        let layers = match part {
            Part::Layer(layer) | Part::Experts(layer) => *layer..layer + parts.len() as u64,
            _ => 0..0,
        };
        let slots = first..self.slots.len();
        self.units.push(Unit { part: *part, layers, chunk, range: start..end, parameters, slots });
    }
}

/// The tensors of a layer that are of one part.
fn of_layer(model: &ModelShape, layer: u64, part: Part) -> (Part, Vec<Tensor>) {
    (part, model.layer_tensors(layer).into_iter().filter(|tensor| tensor.part == part).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::{option, prelude::*, sample::select};

    use super::*;
    use crate::{Attention, Biases, Experts, FeedForward, Latent, MemoryPlan, Norm, Schedule};

    prop_compose! {
        /// Layouts and models that fit each other, small enough to look at every element.
        fn fitting()(
            grid in (1..4_u64, 1..4_u64, 1..4_u64, 1..3_u64),
            sizes in (1..3_u64, 1..7_u64, 1..3_u64, 1..3_u64, 1..4_u64, 1..4_u64, 1..12_u64),
            flags in any::<[bool; 7]>(),
            learned_positions in option::of(1..5_u64),
            experts in option::of((1..4_u64, 0..2_u64, any::<bool>())),
            ep in 1..3_u64,
            latent in option::weighted(0.3, (option::of(1..4_u64), 1..4_u64, 1..4_u64)),
            zero in select(&Zero::ALL[..]),
            unit_layers in 1..4_u64,
        ) -> (ModelShape, ParallelLayout) {
            let ((dp, tp, pp, chunks), (layers, hidden, kv_heads, share, head_dim, ffn, vocabulary)) = (grid, sizes);
            let chunks = if pp > 1 { chunks } else { 1 };
            let ep = if experts.is_some() { ep } else { 1 };
            let layers = layers * pp * chunks;
            let experts = experts.map(|(count, shared, has_dense)| {
                let dense_layers = u64::from(has_dense && layers > 1);
                let dense_ffn = 2 * tp * dense_layers;
                Experts { count: count * ep, top_k: 1, shared, dense_layers, dense_ffn, router_bias: has_dense }
            });
            let latent = latent.map(|(query_rank, kv_rank, value_dim)| {
                Latent { query_rank, kv_rank, rotary_dim: 1, value_dim }
            });
            let is_latent = latent.is_some();
            let model = ModelShape {
                name: "any".into(),
                layers,
                hidden,
                heads: kv_heads * tp * if is_latent { 1 } else { share },
                kv_heads: kv_heads * tp,
                head_dim,
                latent,
                ffn: ffn * tp,
                feed_forward: if flags[0] { FeedForward::Gated } else { FeedForward::Plain },
                vocabulary,
                tied_embeddings: flags[1],
                norm: if flags[2] { Norm::Rms } else { Norm::Layer },
                biases: Biases { qkv: flags[3] && !is_latent, output: flags[4], ffn: flags[5] },
                qk_norm: flags[6] && !is_latent,
                learned_positions,
                experts,
            };
            let schedule = if chunks > 1 { Schedule::Interleaved } else { Schedule::OneForwardOneBackward };
            let layout = ParallelLayout {
                dp: dp * ep, tp, ep, pp, chunks, zero, schedule, micro_batches: pp, sequence_length: 1,
                unit_layers: if dp * ep > 1 { unit_layers.min(layers / pp / chunks) } else { 1 },
                ..ParallelLayout::default()
            };
            (model, layout)
        }
    }

    fn placements(model: &ModelShape, layout: &ParallelLayout) -> Vec<Placement> {
        let of = |rank| Placement::of(model, layout, layout.coordinates(rank));
        (0..layout.world_size()).map(of).collect()
    }

    fn placements_of_experts(model: &ModelShape, layout: &ParallelLayout) -> Vec<Placement> {
        let of = |rank| Placement::of_experts(model, layout, layout.coordinates(rank));
        (0..layout.world_size()).map(of).collect()
    }

    /// How often each element of each tensor is held by the ranks of one replica, or of one group that shares experts, but for
    /// the tied copy.
    fn held(model: &ModelShape, layout: &ParallelLayout) -> HashMap<(Part, &'static str, u64, u64, u64), u64> {
        let mut held = HashMap::new();
        let shared = placements(model, &ParallelLayout { dp: 1, ep: 1, ..*layout });
        let of_experts = placements_of_experts(model, &ParallelLayout { dp: layout.ep, ..*layout });
        for placement in shared.into_iter().chain(of_experts) {
            for slot in placement.slots.iter().filter(|slot| slot.part != Part::TiedEmbedding) {
                for row in slot.first_row..slot.first_row + slot.rows {
                    for column in slot.first_column..slot.first_column + slot.columns {
                        *held.entry((slot.part, slot.name, slot.copy, row, column)).or_default() += 1;
                    }
                }
            }
        }
        held
    }

    fn has_experts(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> bool {
        layout.layers_of_stage(model, stage).sparse > 0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn slots_partition_units_and_units_the_allocation((model, layout) in fitting()) {
            layout.check(&model).unwrap();
            let both = [(placements(&model, &layout), layout.dp), (placements_of_experts(&model, &layout), layout.dp / layout.ep)];
            for (placement, replicas) in both.iter().flat_map(|(of, replicas)| of.iter().map(move |one| (one, *replicas))) {
                let (mut at, mut slot) = (0, 0);
                for unit in &placement.units {
                    prop_assert_eq!((unit.range.start, unit.slots.start), (at, slot));
                    let mut next = at;
                    for slot in placement.slots_of(unit) {
                        prop_assert_eq!(slot.offset, next);
                        match slot.part {
                            Part::Layer(layer) | Part::Experts(layer) => prop_assert!(unit.layers.contains(&layer)),
                            part => prop_assert_eq!(part, unit.part),
                        }
                        next = slot.range().end;
                    }
                    prop_assert_eq!(next - at, unit.parameters);
                    (at, slot) = (unit.range.end, unit.slots.end);
                    let padding = unit.elements() - unit.parameters;
                    match (layout.zero, unit.part) {
                        (_, Part::TiedEmbedding) => {}
                        (Zero::Off, _) => prop_assert_eq!(padding, 0),
                        _ => prop_assert!(padding < replicas),
                    }
                }
                prop_assert_eq!((at, slot), (placement.elements, placement.slots.len()));
            }
        }

        #[test]
        fn the_ranks_of_a_replica_hold_every_element_once((model, layout) in fitting()) {
            let mut held = held(&model, &layout);
            for tensor in model.tensors() {
                let times = if tensor.split.is_some() { 1 } else { layout.tp };
                for copy in 0..tensor.copies {
                    for row in 0..tensor.rows {
                        for column in 0..tensor.columns {
                            let key = (tensor.part, tensor.name, copy, row, column);
                            prop_assert_eq!(held.remove(&key), Some(times), "{:?}", key);
                        }
                    }
                }
            }
            prop_assert!(held.is_empty(), "{:?}", held);
        }

        #[test]
        fn shards_of_a_unit_are_equal_and_partition_it((model, layout) in fitting(), zero in select(&Zero::ALL[1..])) {
            let layout = ParallelLayout { zero, ..layout };
            for unit in placements(&model, &layout).iter().flat_map(|placement| &placement.units) {
                let mut next = unit.range.start;
                for index in 0..layout.dp {
                    let shard = unit.shard(layout.dp, index);
                    prop_assert_eq!(shard.start, next);
                    prop_assert_eq!((shard.end - shard.start) * layout.dp, unit.elements());
                    next = shard.end;
                }
                prop_assert_eq!(next, unit.range.end);
            }
        }

        #[test]
        fn the_tied_copy_lies_as_the_embedding_does((model, layout) in fitting()) {
            let placements = placements(&model, &layout);
            let copies = placements.iter().flat_map(|placement| &placement.units);
            let copies = copies.filter(|unit| unit.part == Part::TiedEmbedding).count() as u64;
            let tied = model.tied_embeddings && layout.pp > 1;
            prop_assert_eq!(copies, if tied { layout.dp * layout.tp } else { 0 });
            let ends = (layout.dp * layout.tp * (layout.pp - 1)) as usize;
            for (first, last) in placements.iter().zip(&placements[ends..]).filter(|_| tied) {
                let (one, two) = (&first.units[0], last.units.last().unwrap());
                prop_assert_eq!((one.part, two.part), (Part::Embedding, Part::TiedEmbedding));
                prop_assert_eq!(one.elements(), two.elements());
                let (one, two) = (first.slots_of(one), last.slots_of(two));
                prop_assert_eq!(two.len(), 1);
                let matrix = Slot { part: one[0].part, offset: one[0].offset, ..two[0].clone() };
                prop_assert_eq!(&one[0], &matrix);
            }
        }

        #[test]
        fn memory_is_planned_for_what_is_placed((model, layout) in fitting()) {
            for stage in 0..layout.pp {
                // No other tensor rank holds more than the first.
                let at = |tp| Coordinates { stage, dp: 0, cp: 0, tp };
                let placed = |tp| [Placement::of(&model, &layout, at(tp)), Placement::of_experts(&model, &layout, at(tp))];
                let elements = |tp| placed(tp).iter().map(|placement| placement.elements).sum::<u64>();
                prop_assert!((1..layout.tp).all(|tp| elements(tp) <= elements(0)));
                let (mut shard, mut buffers) = (0, 0);
                for (placement, replicas) in placed(0).iter().zip([layout.dp, layout.dp / layout.ep]) {
                    let shards = placement.units.iter().map(|unit| unit.shard(replicas, 0));
                    shard += shards.map(|shard| shard.end - shard.start).sum::<u64>();
                    let mut sizes: Vec<u64> = placement.units.iter().map(Unit::elements).collect();
                    sizes.sort_unstable_by(|one, other| other.cmp(one));
                    // Two units, and where the head is, the embedding that it shares.
                    let has_head = placement.units.iter().any(|unit| unit.part == Part::Head);
                    let most = if model.tied_embeddings && has_head { 3 } else { 2 };
                    let largest = sizes.iter().take(most).sum::<u64>();
                    // Of gradients; and of parameters.
                    let times = match layout.zero {
                        Zero::Two if replicas > 1 => 1,
                        Zero::Three if replicas > 1 => 2,
                        _ => 0,
                    };
                    buffers += times * largest * 2;
                }
                let from = |zero| if layout.zero >= zero { shard } else { elements(0) };
                let plan = MemoryPlan::of_stage(&model, &layout, Attention::Flash, stage).unwrap();
                prop_assert_eq!(plan.parameters, 2 * from(Zero::Three));
                prop_assert_eq!(plan.gradients, 2 * from(Zero::Two));
                prop_assert_eq!(plan.optimizer_state, 12 * from(Zero::One));
                let received = if layout.pp > 1 { 2 * model.hidden * 2 } else { 0 };
                let received = received + if layout.ep > 1 && has_experts(&model, &layout, stage) { 2 * 2 * model.hidden } else { 0 };
                prop_assert_eq!(plan.communication, buffers + received);
            }
        }

        /// A trainer multiplies by queries, keys and values as one matrix, and so by gate and up.
        #[test]
        fn what_has_the_same_input_is_one_matrix((model, layout) in fitting()) {
            let both = [placements(&model, &layout), placements_of_experts(&model, &layout)];
            for placement in both.iter().flatten() {
                let is_layer = |unit: &&Unit| matches!(unit.part, Part::Layer(_) | Part::Experts(_));
                for unit in placement.units.iter().filter(is_layer) {
                    let slots = placement.slots_of(unit);
                    let queries = if model.latent.is_some() { &["q", "kv_down"][..] } else { &["q", "k", "v"] };
                    let others: [&[&str]; 3] = [&["q_down", "kv_down"], &["gate", "up"], &["q.bias", "k.bias", "v.bias"]];
                    for stacked in others.into_iter().chain([queries]) {
                        for first in slots.iter().enumerate().filter(|(_, slot)| slot.name == stacked[0]) {
                            let (index, first) = first;
                            for (slot, name) in slots[index..].iter().zip(stacked) {
                                prop_assert_eq!((slot.name, slot.copy), (*name, first.copy));
                                prop_assert_eq!(slot.columns, first.columns);
                            }
                        }
                    }
                }
            }
        }

        #[test]
        fn chunks_go_through_the_layers_in_order((model, layout) in fitting()) {
            let pieces = (0..layout.chunks).flat_map(|chunk| (0..layout.pp).map(move |stage| (stage, chunk)));
            let layers: Vec<u64> =
                pieces.flat_map(|(stage, chunk)| layout.chunk_layers(&model, stage, chunk)).collect();
            prop_assert_eq!(layers, (0..model.layers).collect::<Vec<_>>());
        }
    }

    /// The second stage of two, its second tensor rank of two, three replicas.
    #[test]
    fn a_small_rank_by_hand() {
        let model = ModelShape { tied_embeddings: true, vocabulary: 511, ..ModelShape::preset("tiny").unwrap() };
        let layout = ParallelLayout {
            dp: 3,
            tp: 2,
            pp: 2,
            chunks: 2,
            micro_batches: 2,
            zero: Zero::One,
            schedule: Schedule::Interleaved,
            ..ParallelLayout::default()
        };
        layout.check(&model).unwrap();
        let placement = Placement::of(&model, &layout, Coordinates { stage: 1, dp: 2, cp: 0, tp: 1 });
        let parts: Vec<(Part, u64)> = placement.units.iter().map(|unit| (unit.part, unit.chunk)).collect();
        let layers = [(Part::Layer(2), 0), (Part::Layer(3), 0), (Part::Layer(6), 1), (Part::Layer(7), 1)];
        assert_eq!(parts[..4], layers);
        assert_eq!(parts[4..], [(Part::Head, 1), (Part::TiedEmbedding, 1)]);
        // A norm of 128, halves of q, k, v and the output, a norm, halves of gate, up and down: 98,560, which is one
        // more than a multiple of 3.
        let offsets: Vec<(&str, u64)> = placement.slots[..9].iter().map(|slot| (slot.name, slot.offset)).collect();
        let expected = [
            ("attention_norm", 0),
            ("q", 128),
            ("k", 128 + 8192),
            ("v", 128 + 8192 + 4096),
            ("output", 128 + 16_384),
            ("ffn_norm", 128 + 24_576),
            ("gate", 256 + 24_576),
            ("up", 256 + 24_576 + 24_576),
            ("down", 256 + 24_576 + 49_152),
        ];
        assert_eq!(offsets, expected);
        assert_eq!((placement.units[0].parameters, &placement.units[1].range), (98_560, &(98_562..197_124)));
        assert_eq!(placement.units[1].shard(3, 2), 98_562 + 2 * 32_854..197_124);
        let output = &placement.slots[4];
        assert_eq!((output.rows, output.columns, output.first_row, output.first_column), (128, 64, 0, 64));
        assert_eq!((output.whole, output.replicated, placement.slots[0].replicated), ((128, 128), false, true));
        // The last of 511 rows is missing.
        let tied = placement.slots.last().unwrap();
        assert_eq!((tied.name, tied.rows, tied.first_row, tied.whole), ("embedding", 255, 256, (511, 128)));
    }
}
