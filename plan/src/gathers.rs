//! When units are gathered, where replicas share the parameters (ZeRO-3).
//!
//! A pass goes through the units of its chunk. While one computes, the next ones come in, as many as the layout says; a unit that is
//! needed again that soon stays. So a backward pass that follows its forward pass finds the last units of that one.

use std::{collections::HashMap, ops::Range};

use crate::{
    layout::ParallelLayout,
    schedule::{Pass, Work},
    shape::ModelShape,
    tensors::Part,
};

/// After so many rounds of micro-batches through all stages, rounds are alike.
const FEW_ROUNDS: u64 = 4;

impl ParallelLayout {
    /// The units that a pass needs, in order; those that it needs together stand together. The gradients of an embedding and of
    /// matrices need no parameters.
    pub fn needs(&self, model: &ModelShape, stage: u64, work: Work) -> Vec<Vec<Part>> {
        self.needs_of(model, stage, work, self.chunk_layers(model, stage, work.chunk))
    }

    fn needs_of(&self, model: &ModelShape, stage: u64, work: Work, layers: Range<u64>) -> Vec<Vec<Part>> {
        let piece = self.schedule.piece(stage, self.pp, work.chunk);
        let is_last = piece + 1 == self.schedule.pieces(self.pp, self.chunks);
        let matrix = if self.has_embedding(stage) { Part::Embedding } else { Part::TiedEmbedding };
        let head = [Part::Head].into_iter().chain(model.tied_embeddings.then_some(matrix));
        let head = is_last.then(|| head.collect());
        let layers = layers.map(|layer| {
            let experts = model.layer_experts(layer).map(|_| Part::Experts(layer));
            [Part::Layer(layer)].into_iter().chain(experts).collect()
        });
        match work.pass {
            Pass::Forward => {
                let embedding = (piece == 0).then(|| vec![Part::Embedding]);
                embedding.into_iter().chain(layers).chain(head).collect()
            }
            Pass::Backward => head.into_iter().chain(layers.rev()).collect(),
            Pass::Weights => Vec::new(),
        }
    }
}

/// How often the units of a stage are gathered in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathers {
    /// And its copy, which no stage has beside it.
    embedding: u64,
    /// Layers without experts.
    dense: u64,
    /// Layers with experts, without these.
    sparse: u64,
    /// They come in an order of their own.
    experts: u64,
    head: u64,
}

impl Gathers {
    /// Those of a stage. The layout must fit the model.
    pub(crate) fn of_stage(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Gathers {
        let (pp, micro_batches) = (layout.pp, layout.micro_batches);
        let chunks = || (0..layout.chunks).map(|chunk| layout.chunk_layers(model, stage, chunk));
        let of_chunk = |layers: Range<u64>| model.layers_of(layers);
        // No pass finds what is in the middle of a long one. Which layers these are does not matter if all are alike.
        let is_mixed = chunks().map(of_chunk).any(|layers| layers.dense > 0 && layers.sparse > 0);
        let longest = if is_mixed { u64::MAX } else { layout.prefetch + 1 };
        let of = |micro_batches| Gathers::count(model, &ParallelLayout { micro_batches, ..*layout }, stage, longest);
        let rounds = micro_batches.saturating_sub(FEW_ROUNDS * pp).div_ceil(pp);
        let few = of(micro_batches - rounds * pp);
        let mut gathers = match rounds {
            0 => few,
            _ => few.and_more(rounds, of(micro_batches - (rounds + 1) * pp)),
        };
        for layers in chunks() {
            let middle = of_chunk(layers.start.saturating_add(longest).min(layers.end)..layers.end);
            gathers.dense += 2 * layout.through_a_chunk() * middle.dense;
            gathers.sparse += 2 * layout.through_a_chunk() * middle.sparse;
            gathers.experts += 2 * layout.through_a_chunk() * middle.sparse;
        }
        gathers
    }

    /// Those of each of [`Holdings::units`](crate::memory::Holdings::units).
    pub(crate) fn of_units(self, has_embedding: bool) -> [u64; 6] {
        let Gathers { embedding, dense, sparse, experts, head } = self;
        let (own, copied) = if has_embedding { (embedding, 0) } else { (0, embedding) };
        [own, dense, sparse, experts, head, copied]
    }

    /// With so many rounds more, each of which adds what the last one did.
    fn and_more(self, rounds: u64, before: Gathers) -> Gathers {
        let more = |now: u64, before: u64| now + rounds * (now - before);
        Gathers {
            embedding: more(self.embedding, before.embedding),
            dense: more(self.dense, before.dense),
            sparse: more(self.sparse, before.sparse),
            experts: more(self.experts, before.experts),
            head: more(self.head, before.head),
        }
    }

    /// Goes through all passes, where chunks have so many layers at most.
    fn count(model: &ModelShape, layout: &ParallelLayout, stage: u64, longest: u64) -> Gathers {
        let mut gathers = Gathers::default();
        let (mut at, mut at_experts, mut needed) = (0, 0, HashMap::new());
        for work in layout.schedule.order(stage, layout.pp, layout.micro_batches, layout.chunks) {
            let Range { start, end } = layout.chunk_layers(model, stage, work.chunk);
            for parts in layout.needs_of(model, stage, work, start..end.min(start.saturating_add(longest))) {
                at += 1;
                for part in parts {
                    let at = match part {
                        Part::Experts(_) => {
                            at_experts += 1;
                            at_experts
                        }
                        _ => at,
                    };
                    let stayed = needed.insert(part, at).is_some_and(|before| at - before <= layout.prefetch);
                    match part {
                        _ if stayed => {}
                        Part::Embedding | Part::TiedEmbedding => gathers.embedding += 1,
                        Part::Layer(layer) if model.layer_experts(layer).is_some() => gathers.sparse += 1,
                        Part::Layer(_) => gathers.dense += 1,
                        Part::Experts(_) => gathers.experts += 1,
                        Part::Head => gathers.head += 1,
                    }
                }
            }
        }
        gathers
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*, sample::select};

    use super::*;
    use crate::{Experts, Schedule};

    fn gathers(layers: u64, tied_embeddings: bool, layout: ParallelLayout, stage: u64) -> [u64; 3] {
        let model = ModelShape { layers, tied_embeddings, ..ModelShape::preset("tiny").unwrap() };
        layout.check(&model).unwrap();
        let Gathers { embedding, dense, sparse, experts, head } = Gathers::of_stage(&model, &layout, stage);
        assert_eq!((sparse, experts), (0, 0));
        [embedding, dense, head]
    }

    /// One stage, four layers, three micro-batches.
    #[test]
    fn what_is_needed_again_soon_stays() {
        let ahead = |prefetch| ParallelLayout { micro_batches: 3, prefetch, ..ParallelLayout::default() };
        assert_eq!(gathers(4, false, ahead(0), 0), [3, 24, 6]);
        assert_eq!(gathers(4, false, ahead(1), 0), [3, 24, 3], "the head stays for the backward pass");
        assert_eq!(gathers(4, true, ahead(1), 0), [6, 24, 3], "and so does the matrix that it shares");
        assert_eq!(gathers(4, false, ahead(2), 0), [3, 22, 3], "the first layer stays for the next micro-batch");
        assert_eq!(gathers(4, false, ahead(3), 0), [3, 19, 3], "the last one stays for the backward pass, too");
        assert_eq!(gathers(4, false, ahead(100), 0), [1, 4, 1]);
    }

    #[test]
    fn a_stage_of_one_layer_always_has_it() {
        let layout = ParallelLayout { pp: 3, micro_batches: 8, ..ParallelLayout::default() };
        assert_eq!(gathers(3, false, layout, 1), [0, 1, 0]);
        // Two forwards, then one of each, at the end two backwards: what follows an embedding is gathered again.
        assert_eq!(gathers(3, false, layout, 0), [8, 8, 0]);
    }

    proptest! {
        #[test]
        fn long_runs_are_counted_by_their_rounds(
            (schedule, pp, chunks) in select(vec![
                (Schedule::Gpipe, 3, 1), (Schedule::OneForwardOneBackward, 1, 1), (Schedule::OneForwardOneBackward, 4, 1),
                (Schedule::ZeroBubble, 3, 1), (Schedule::Interleaved, 2, 3), (Schedule::Interleaved, 4, 2),
            ]),
            rounds in 1..12_u64,
            more in 0..3_u64,
            layers in 0..5_u64,
            prefetch in 0..4_u64,
            tied_embeddings in any::<bool>(),
            experts in option::of(0..4_u64),
        ) {
            let more = if schedule == Schedule::Interleaved { 0 } else { more };
            let layers = pp * chunks + layers;
            let experts = experts.map(|dense_layers| Experts {
                dense_layers, dense_ffn: 8, ..ModelShape::preset("mixtral-8x7b").unwrap().experts.unwrap()
            });
            let model = ModelShape { layers, tied_embeddings, experts, ..ModelShape::preset("tiny").unwrap() };
            let micro_batches = rounds * pp + more;
            let layout = ParallelLayout { schedule, pp, chunks, micro_batches, prefetch, ..ParallelLayout::default() };
            layout.check(&model).unwrap();
            for stage in 0..pp {
                prop_assert_eq!(
                    Gathers::of_stage(&model, &layout, stage), Gathers::count(&model, &layout, stage, u64::MAX)
                );
            }
        }
    }
}
