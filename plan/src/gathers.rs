//! When units are gathered, where replicas share the parameters (ZeRO-3).
//!
//! A pass goes through the units of its chunk. While one computes, the next ones come in, as many as the layout says; a unit that is
//! needed again that soon stays. So a backward pass that follows its forward pass finds the last units of that one.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use crate::{
    layout::ParallelLayout,
    schedule::{Pass, Work},
    shape::ModelShape,
    tensors::Part,
    units::UnitKind,
};

/// After so many rounds of micro-batches through all stages, rounds are alike.
const FEW_ROUNDS: u64 = 4;

impl ParallelLayout {
    /// The units that a pass needs, in order; those that it needs together stand together. Units of layers are named by the first
    /// one. The gradients of an embedding and of matrices need no parameters.
    pub fn needs(&self, model: &ModelShape, stage: u64, work: Work) -> Vec<Vec<Part>> {
        self.needs_of(model, stage, work, u64::MAX)
    }

    /// The same, with so many units at each end of layers that are alike.
    fn needs_of(&self, model: &ModelShape, stage: u64, work: Work, ends: u64) -> Vec<Vec<Part>> {
        let piece = self.schedule.piece(stage, self.pp, work.chunk);
        let is_last = piece + 1 == self.schedule.pieces(self.pp, self.chunks);
        let matrix = if self.has_embedding(stage) { Part::Embedding } else { Part::TiedEmbedding };
        let head = [Part::Head].into_iter().chain(model.tied_embeddings.then_some(matrix));
        let head = is_last.then(|| head.collect());
        let experts = |layer: u64| model.layer_experts(layer).map(|_| Part::Experts(layer));
        // A unit is needed from the first of its layers on that a pass comes to.
        let needed = |unit: Range<u64>, layers: &mut dyn Iterator<Item = u64>| -> Vec<Vec<Part>> {
            let mut own = Some(Part::Layer(unit.start));
            let parts = layers.map(|layer| own.take().into_iter().chain(experts(layer)).collect());
            parts.filter(|parts: &Vec<Part>| !parts.is_empty()).collect()
        };
        let units = self.alike_layers(model, stage, work.chunk).into_iter().flat_map(|alike| alike.ends(ends));
        match work.pass {
            Pass::Forward => {
                let embedding = (piece == 0).then(|| vec![Part::Embedding]);
                let layers = units.flat_map(|unit| needed(unit.clone(), &mut unit.clone()));
                embedding.into_iter().chain(layers).chain(head).collect()
            }
            Pass::Backward => {
                let layers = units.rev().flat_map(|unit| needed(unit.clone(), &mut unit.clone().rev()));
                head.into_iter().chain(layers).collect()
            }
            Pass::Weights => Vec::new(),
        }
    }
}

/// How often the units of a stage are gathered in a step, all of a kind together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathers(BTreeMap<UnitKind, u64>);

impl Gathers {
    /// Those of a stage. The layout must fit the model.
    pub(crate) fn of_stage(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Gathers {
        let (pp, micro_batches) = (layout.pp, layout.micro_batches);
        // No pass finds what is in the middle of a long one.
        let ends = layout.prefetch + 1;
        let of = |micro_batches| Gathers::count(model, &ParallelLayout { micro_batches, ..*layout }, stage, ends);
        let rounds = micro_batches.saturating_sub(FEW_ROUNDS * pp).div_ceil(pp);
        let few = of(micro_batches - rounds * pp);
        let mut gathers = match rounds {
            0 => few,
            _ => few.and_more(rounds, &of(micro_batches - (rounds + 1) * pp)),
        };
        for alike in (0..layout.chunks).flat_map(|chunk| layout.alike_layers(model, stage, chunk)) {
            for (kind, count) in alike.kinds_between(ends) {
                gathers.add(kind, 2 * layout.through_a_chunk() * count);
            }
        }
        gathers
    }

    /// Those of a kind of units.
    pub(crate) fn of(&self, kind: UnitKind) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    fn add(&mut self, kind: UnitKind, count: u64) {
        if count > 0 {
            *self.0.entry(kind).or_default() += count;
        }
    }

    /// With so many rounds more, each of which adds what the last one did.
    fn and_more(self, rounds: u64, before: &Gathers) -> Gathers {
        let more = self.0.into_iter().map(|(kind, now)| (kind, now + rounds * (now - before.of(kind))));
        Gathers(more.collect())
    }

    /// Goes through all passes, with so many units at each end of layers that are alike.
    fn count(model: &ModelShape, layout: &ParallelLayout, stage: u64, ends: u64) -> Gathers {
        let mut gathers = Gathers::default();
        // Experts come in an order of their own.
        let (mut at, mut at_experts, mut needed) = (0, 0, HashMap::new());
        for work in layout.schedule.order(stage, layout.pp, layout.micro_batches, layout.chunks) {
            let alike = layout.alike_layers(model, stage, work.chunk);
            for parts in layout.needs_of(model, stage, work, ends) {
                let is_of_experts = |part: &Part| matches!(part, Part::Experts(_));
                at += u64::from(!parts.iter().all(is_of_experts));
                at_experts += u64::from(parts.iter().any(is_of_experts));
                for part in parts {
                    let at = if is_of_experts(&part) { at_experts } else { at };
                    let stayed = needed.insert(part, at).is_some_and(|before| at - before <= layout.prefetch);
                    let kind = match part {
                        Part::Embedding => Some(UnitKind::Embedding),
                        Part::TiedEmbedding => Some(UnitKind::TiedEmbedding),
                        Part::Layer(first) => alike.iter().find_map(|alike| alike.kind(first)),
                        Part::Experts(_) => Some(UnitKind::Experts),
                        Part::Head => Some(UnitKind::Head),
                    };
                    kind.filter(|_| !stayed).into_iter().for_each(|kind| gathers.add(kind, 1));
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

    /// Of the embedding, of layers and of the head.
    fn gathers(layers: u64, tied_embeddings: bool, layout: ParallelLayout, stage: u64) -> [u64; 3] {
        let model = ModelShape { layers, tied_embeddings, ..ModelShape::preset("tiny").unwrap() };
        layout.check(&model).unwrap();
        let mut gathers = [0; 3];
        for (kind, count) in Gathers::of_stage(&model, &layout, stage).0 {
            let place = match kind {
                UnitKind::Embedding => 0,
                UnitKind::Dense(_) => 1,
                UnitKind::Head => 2,
                _ => panic!("{kind:?}"),
            };
            gathers[place] += count;
        }
        gathers
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
        let units_of = |unit_layers| ParallelLayout { dp: 2, unit_layers, ..ahead(1) };
        assert_eq!(gathers(4, false, units_of(2), 0), [3, 12, 3], "half as many units");
        assert_eq!(gathers(4, false, units_of(3), 0), [3, 12, 3], "the last of which is smaller");
        assert_eq!(gathers(4, false, units_of(4), 0), [3, 6, 3], "one, as often as the model is gone through");
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
            layers in 0..25_u64,
            prefetch in 0..4_u64,
            tied_embeddings in any::<bool>(),
            experts in option::of(0..4_u64),
            unit_layers in 1..4_u64,
        ) {
            let more = if schedule == Schedule::Interleaved { 0 } else { more };
            let layers = pp * chunks + layers;
            let experts = experts.map(|dense_layers| Experts {
                dense_layers, dense_ffn: 8, ..ModelShape::preset("mixtral-8x7b").unwrap().experts.unwrap()
            });
            let model = ModelShape { layers, tied_embeddings, experts, ..ModelShape::preset("tiny").unwrap() };
            let micro_batches = rounds * pp + more;
            let layout = ParallelLayout {
                dp: 2, schedule, pp, chunks, micro_batches, prefetch, unit_layers, ..ParallelLayout::default()
            };
            for stage in 0..pp {
                prop_assert_eq!(
                    Gathers::of_stage(&model, &layout, stage), Gathers::count(&model, &layout, stage, u64::MAX)
                );
            }
        }
    }
}
