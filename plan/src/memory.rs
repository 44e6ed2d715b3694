//! Memory of a rank, by category.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    activations::Attention,
    error::PlanError,
    experts::Layers,
    layout::{ParallelLayout, Precision, Recompute, Zero},
    put_off::{Held, PutOff},
    schedule::{Pass, Schedule},
    shape::ModelShape,
    units::{Holdings, UnitKind, UnitSize},
};

/// Predicted bytes of one rank, by the categories in which they are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Parameters in the precision they compute in.
    pub parameters: u64,
    /// Gradients.
    pub gradients: u64,
    /// Moments and master weights.
    pub optimizer_state: u64,
    /// Kept for the backward pass, recomputed ones included.
    pub activations: u64,
    /// Gather, reduce and receive buffers.
    pub communication: u64,
    /// Logits of every micro-batch in flight through the head, one gradient of them, and gradients that wait for those of weights.
    pub workspace: u64,
    /// The batch.
    pub inputs: u64,
}

impl MemoryPlan {
    /// The categories and their names.
    pub fn categories(&self) -> [(&'static str, u64); 7] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer_state", self.optimizer_state),
            ("activations", self.activations),
            ("communication", self.communication),
            ("workspace", self.workspace),
            ("inputs", self.inputs),
        ]
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.categories().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// The fullest rank of a run.
    pub fn fullest(model: &ModelShape, layout: &ParallelLayout, attention: Attention) -> Result<MemoryPlan, PlanError> {
        layout.check(model)?;
        let holdings = Holdings::of(model, layout);
        let mut fullest = MemoryPlan::default();
        for stage in 0..layout.pp {
            fullest = fullest.or_fuller(holdings.plan(model, layout, attention, stage)?);
        }
        Ok(fullest)
    }

    /// With what cuBLAS takes of a GPU: 32 MiB, as PyTorch and our trainer let it.
    pub fn on_gpu(self) -> MemoryPlan {
        MemoryPlan { workspace: self.workspace.saturating_add(32 << 20), ..self }
    }

    /// The one that takes more of a rank, of moments.
    fn or_fuller(self, moments: [MemoryPlan; 3]) -> MemoryPlan {
        moments.into_iter().fold(self, |one, other| if other.total() > one.total() { other } else { one })
    }

    /// A rank of one stage, when it is fullest.
    pub fn of_stage(
        model: &ModelShape,
        layout: &ParallelLayout,
        attention: Attention,
        stage: u64,
    ) -> Result<MemoryPlan, PlanError> {
        let moments = MemoryPlan::moments_of_stage(model, layout, attention, stage)?;
        Ok(MemoryPlan::default().or_fuller(moments))
    }

    /// A rank of one stage: between the passes through the head, if it has one; as a layer is computed again, if it is; and with
    /// most gradients of weights put off, if they are. What is in the categories is the most that is ever in them in one of
    /// these.
    pub fn moments_of_stage(
        model: &ModelShape,
        layout: &ParallelLayout,
        attention: Attention,
        stage: u64,
    ) -> Result<[MemoryPlan; 3], PlanError> {
        layout.check(model)?;
        if stage >= layout.pp {
            return Err(PlanError::Layout(format!("there is no stage {stage}; the layout has {} stages", layout.pp)));
        }
        Holdings::of(model, layout).plan(model, layout, attention, stage)
    }
}

impl Holdings {
    /// Buffers of ZeRO, in bytes: a unit whose gradients are computed and one whose gradients are reduced; one that computes and
    /// those that come in. These may be the largest ones. A tied embedding is at hand beside the head. Experts have buffers of
    /// their own.
    fn buffers(layout: &ParallelLayout, units: &BTreeMap<UnitKind, UnitSize>, is_tied: bool) -> u128 {
        let (of_experts, others): (Vec<_>, Vec<_>) = units.iter().partition(|(kind, _)| **kind == UnitKind::Experts);
        let of = |kinds: Vec<(&UnitKind, &UnitSize)>, beside: u64| -> u128 {
            let shared = kinds.iter().filter(|(_, unit)| unit.replicas > 1);
            let mut sizes: Vec<(u64, u64)> = shared.map(|(_, unit)| (unit.padded(layout.zero), unit.count)).collect();
            sizes.sort_unstable_by_key(|size| Reverse(*size));
            let largest = |from: Zero, count: u64, bytes: u64| -> u128 {
                let mut left = if layout.zero >= from { count + beside } else { 0 };
                let taken = sizes.iter().map(|(parameters, count)| {
                    let taken = left.min(*count);
                    left -= taken;
                    u128::from(*parameters) * u128::from(taken)
                });
                taken.sum::<u128>() * u128::from(bytes)
            };
            // Layers whose gradients of matrices are put off have begun with those of their norms: all of them are there, and one
            // that is reduced.
            let is_layers = |kind: &UnitKind| matches!(kind, UnitKind::Dense(_) | UnitKind::Sparse(_));
            let layers = kinds.iter().filter(|(kind, unit)| is_layers(kind) && unit.replicas > 1);
            let put_off: u64 = match layout.schedule {
                Schedule::ZeroBubble => layers.map(|(_, unit)| unit.count * unit.padded(layout.zero)).sum(),
                _ => 0,
            };
            let gradients = match put_off {
                0 => largest(Zero::Two, 2, layout.gradients.bytes()),
                _ if layout.zero < Zero::Two => 0,
                _ => largest(Zero::Two, 1, layout.gradients.bytes()) + u128::from(put_off * layout.gradients.bytes()),
            };
            gradients + largest(Zero::Three, 1 + layout.prefetch, layout.precision.bytes())
        };
        of(others, u64::from(is_tied && units.contains_key(&UnitKind::Head))) + of(of_experts, 0)
    }

    fn plan(
        &self,
        model: &ModelShape,
        layout: &ParallelLayout,
        attention: Attention,
        stage: u64,
    ) -> Result<[MemoryPlan; 3], PlanError> {
        let layers = layout.layers_of_stage(model, stage);
        let units = self.units(model, layout, stage);
        let parameters: u64 = units.values().map(|unit| unit.count * unit.padded(layout.zero)).sum();
        let shard: u64 = units.values().map(|unit| unit.count * unit.shard()).sum();
        let sharded_from = |zero: Zero| if layout.zero >= zero { shard } else { parameters };
        let (parameter_bytes, gradient_bytes) = (layout.precision.bytes(), layout.gradients.bytes());

        let tokens = u128::from(layout.micro_batch_tokens());
        let (hidden, element) = (u128::from(model.hidden), u128::from(parameter_bytes));
        let last = layout.has_head(stage);
        let in_flight = layout.schedule.in_flight(stage, layout.pp, layout.micro_batches, layout.chunks);
        let (first, last_layer) = model.kinds_of_layers();
        let kinds = [(layers.dense, first), (layers.sparse, last_layer)];
        let kinds = || kinds.into_iter().filter(|(count, _)| *count > 0).map(|(_, layer)| layer);
        let kept_of = |layer| model.kept_activation_bytes(layout, attention, layer);
        let again = match layout.recompute {
            Recompute::None => 0,
            _ => kinds().map(|layer| model.recomputed_activation_bytes(layout, attention, layer)).max().unwrap_or(0),
        };
        // Of each micro-batch that has been through the head and has yet to come back through it: the input and output
        // of the final norm, and the logits.
        let at_head = if last { u128::from(layout.schedule.in_flight_at_head(layout.micro_batches)) } else { 0 };
        let norm = tokens * hidden * element / u128::from(layout.token_shares());
        let head = at_head * 2 * norm;
        // A micro-batch that is in a layer has not been through the head; a whole last layer has made its input.
        let without_this = match layout.recompute {
            Recompute::Full => head.saturating_sub(norm),
            _ => head.saturating_sub(2 * norm),
        };
        let put_off = PutOff::of(model, layout, stage);
        let [forward, back] = match layout.schedule {
            Schedule::ZeroBubble => {
                let (dense, sparse) = (u128::from(layers.dense), u128::from(layers.sparse));
                put_off.moments(dense * kept_of(first) + sparse * kept_of(last_layer), in_flight)
            }
            _ => [put_off.at_most(most_in_flight(model, layout, stage, kept_of)); 2],
        };

        let received = if layout.pp > 1 { 2 * norm } else { 0 };
        // Rows of all tokens, before they are shared and after they were gathered.
        let all_rows = if layout.sequence_parallel { 2 * tokens * hidden * element } else { 0 };
        // Rows that go to other ranks' experts and rows that come from there, on an average.
        let exchanged = match model.experts {
            Some(experts) if layout.ep > 1 && layers.sparse > 0 => {
                2 * u128::from(experts.top_k) * tokens * hidden * element
            }
            _ => 0,
        };
        let communication = Holdings::buffers(layout, &units, model.tied_embeddings)
            + received
            + all_rows
            + layout.context_buffer_bytes(model)
            + exchanged
            + put_off.communication();
        let logits = tokens * u128::from(model.vocabulary.div_ceil(layout.tp)) * element;

        let small = |bytes: u128, what| u64::try_from(bytes).map_err(|_| PlanError::TooLarge(what));
        let moment = |held: Held, more_activations: u128, logits: u128| {
            Ok(MemoryPlan {
                parameters: sharded_from(Zero::Three) * parameter_bytes,
                gradients: sharded_from(Zero::Two) * gradient_bytes,
                optimizer_state: sharded_from(Zero::One) * optimizer_bytes(layout.precision),
                activations: small(held.activations + more_activations, "memory for activations")?,
                communication: small(communication, "memory for communication")?,
                workspace: small(held.workspace + logits, "memory for logits")?,
                inputs: small(8 * tokens, "memory for the batch")?,
            })
        };
        // In the head there is the gradient of logits as well; what is computed again has been through it.
        let in_head = moment(forward, head, if last { (at_head + 1) * logits } else { 0 })?;
        let in_layer = |held| moment(held, again + without_this, at_head.saturating_sub(1) * logits);
        Ok([in_head, in_layer(forward)?, in_layer(back)?])
    }
}

/// The most that is kept on a stage of micro-batches that have gone forward and not come back, given what a layer keeps.
fn most_in_flight(model: &ModelShape, layout: &ParallelLayout, stage: u64, kept: impl Fn(u64) -> u128) -> u128 {
    let ParallelLayout { schedule, pp, micro_batches, chunks, .. } = *layout;
    let (first, last) = model.kinds_of_layers();
    let of_chunk = |chunk| {
        let Layers { dense, sparse } = model.layers_of(layout.chunk_layers(model, stage, chunk));
        u128::from(dense) * kept(first) + u128::from(sparse) * kept(last)
    };
    let chunk_bytes: Vec<u128> = (0..chunks).map(of_chunk).collect();
    if chunk_bytes.iter().all(|bytes| *bytes == chunk_bytes[0]) {
        return u128::from(schedule.in_flight(stage, pp, micro_batches, chunks)) * chunk_bytes[0];
    }
    // After a few rounds all are alike.
    let order = schedule.order(stage, pp, micro_batches.min(4 * pp), chunks);
    let held = order.iter().scan(0, |held, work| {
        let bytes = chunk_bytes[work.chunk as usize];
        match work.pass {
            Pass::Forward => *held += bytes,
            Pass::Backward => *held -= bytes,
            Pass::Weights => {}
        }
        Some(*held)
    });
    held.max().unwrap_or(0)
}

/// Bytes the optimizer keeps for a parameter: two moments, and a master copy where parameters are in bf16.
pub(crate) fn optimizer_bytes(precision: Precision) -> u64 {
    match precision {
        Precision::Bf16 => 12,
        Precision::Fp32 => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(name: &str, layout: ParallelLayout) -> u64 {
        let model = ModelShape::preset(name).unwrap();
        let plan = MemoryPlan::fullest(&model, &layout, Attention::Flash).unwrap();
        plan.parameters + plan.gradients + plan.optimizer_state
    }

    #[test]
    fn a_parameter_takes_16_or_18_bytes() {
        let base = ParallelLayout::default();
        for (layout, bytes) in [
            (base, 16),
            (ParallelLayout { gradients: Precision::Fp32, ..base }, 18),
            (ParallelLayout { precision: Precision::Fp32, gradients: Precision::Fp32, ..base }, 16),
        ] {
            for name in ["gpt2-124m", "llama-8b", "llama-405b", "mixtral-8x7b"] {
                assert_eq!(states(name, layout), bytes * ModelShape::preset(name).unwrap().parameters(), "{name}");
            }
        }
    }

    /// The table people know, for models of nominal size.
    #[test]
    fn the_well_known_table() {
        for (name, billions, gigabytes) in [
            ("llama-1b", 1.0, 16.0),
            ("llama-8b", 7.0, 112.0),
            ("llama-70b", 70.0, 1120.0),
            ("llama-405b", 405.0, 6480.0),
        ] {
            let parameters = ModelShape::preset(name).unwrap().parameters();
            let per_parameter = states(name, ParallelLayout::default()) as f64 / parameters as f64;
            assert_eq!(billions * per_parameter, gigabytes, "{name}");
        }
    }

    /// ZeRO's own table (Rajbhandari et al., 2020): 7.5 B parameters on 64 ranks take 120, 31.4, 16.6 and 1.9 GB.
    #[test]
    fn zero_falls_as_published() {
        let parameters = 7.5e9;
        let planned = |zero: u8| {
            let layout = ParallelLayout { dp: 64, zero: Zero::try_from(zero).unwrap(), ..ParallelLayout::default() };
            let model = ModelShape::preset("llama-8b").unwrap();
            states("llama-8b", layout) as f64 / model.parameters() as f64 * parameters / 1e9
        };
        for (zero, gigabytes) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            assert!((planned(zero) - gigabytes).abs() < 0.05, "ZeRO-{zero}: {} {gigabytes}", planned(zero));
        }
    }

    #[test]
    fn stages_and_tensor_shards_add_up_to_the_model() {
        let model = ModelShape::preset("llama-70b").unwrap();
        for (tp, pp) in [(1, 1), (1, 8), (8, 1), (4, 10)] {
            let layout = ParallelLayout { tp, pp, ..ParallelLayout::default() };
            let stages = (0..pp).map(|stage| MemoryPlan::of_stage(&model, &layout, Attention::Flash, stage).unwrap());
            let parameters: u64 = stages.map(|plan| plan.parameters / 2 * tp).sum();
            // Norms are on every tensor rank.
            let norms = (2 * 80 + 1) * 8192;
            assert_eq!(parameters, model.parameters() + (tp - 1) * norms, "tp {tp} pp {pp}");
        }
        let tied = ModelShape::preset("llama-1b").unwrap();
        let layout = ParallelLayout { pp: 2, ..ParallelLayout::default() };
        let stages = (0..2).map(|stage| MemoryPlan::of_stage(&tied, &layout, Attention::Flash, stage).unwrap());
        let parameters: u64 = stages.map(|plan| plan.parameters / 2).sum();
        assert_eq!(parameters, tied.parameters() + 128_256 * 2048, "both ends hold the tied embedding");
    }

    /// Every byte of two small ranks, by hand.
    #[test]
    fn a_small_rank_by_hand() {
        let model = ModelShape::preset("tiny").unwrap();
        let layout = ParallelLayout {
            dp: 2,
            pp: 2,
            tp: 2,
            zero: Zero::Three,
            micro_batch: 3,
            micro_batches: 4,
            sequence_length: 64,
            recompute: Recompute::Full,
            ..ParallelLayout::default()
        };
        // A layer's half: q 128×64, k and v 128×32 each, output 64×128, three of 128×192, and two whole norms.
        let layer = 128 * 64 + 2 * 128 * 32 + 64 * 128 + 3 * 128 * 192 + 2 * 128;
        let (first, last) = (256 * 128 + 4 * layer, 4 * layer + 128 + 256 * 128);
        let tokens = 3 * 64;
        // Per token: four of 128, and halves of q, k, v, the output (2·128 + 2·64) and of 3·384; 8 logarithms' half.
        let whole = tokens * (2 * (4 * 128) + (2 * (2 * 128 + 2 * 64 + 3 * 384) + 4 * 8) / 2);
        let kept = tokens * 128 * 2;
        let at = |stage| MemoryPlan::of_stage(&model, &layout, Attention::Flash, stage).unwrap();
        let (one, two) = (at(0), at(1));
        assert_eq!((one.parameters, one.gradients, one.optimizer_state), (first, first, 6 * first));
        assert_eq!((two.parameters, two.optimizer_state), (last, 6 * last));
        // Two micro-batches in flight on the first stage, one on the last, where a layer's
        // tensors and the final norm's input are there at once.
        assert_eq!(one.activations, 2 * 4 * kept + (whole - kept));
        assert_eq!(two.activations, 4 * kept + (whole - kept) + tokens * 128 * 2);
        // Weights and gradients of the largest part, twice each; what comes from the other stage, twice.
        assert_eq!(one.communication, 2 * layer.max(256 * 128) * (2 + 2) + 2 * tokens * 128 * 2);
        assert_eq!((one.workspace, two.workspace), (0, 0), "logits are not there any more");
        let [in_head, ..] = MemoryPlan::moments_of_stage(&model, &layout, Attention::Flash, 1).unwrap();
        assert_eq!((in_head.activations, in_head.workspace), (4 * kept + 2 * tokens * 128 * 2, 2 * tokens * 256 * 2));
        assert_eq!(one.inputs, tokens * 8);
        let fullest = MemoryPlan::fullest(&model, &layout, Attention::Flash).unwrap();
        assert_eq!(fullest.total(), one.total().max(two.total()));
        let error = MemoryPlan::of_stage(&model, &layout, Attention::Flash, 2).unwrap_err().to_string();
        assert!(error.contains("no stage 2; the layout has 2 stages"), "{error}");
    }

    /// `tiny` on three replicas, which divide the head alone: 65,536 and 196,864 leave one, 65,664 nothing.
    #[test]
    fn zero_shards_each_unit_of_its_own() {
        let model = ModelShape::preset("tiny").unwrap();
        let (embedding, layer, head) = (512 * 128, 128 * (128 + 2 * 64 + 128 + 3 * 384 + 2), 512 * 128 + 128);
        assert_eq!(embedding + 8 * layer + head, model.parameters());
        let shard = 21_846 + 8 * 65_622 + 21_888;
        let at = |zero| {
            let layout = ParallelLayout { dp: 3, zero, ..ParallelLayout::default() };
            let plan = MemoryPlan::fullest(&model, &layout, Attention::Flash).unwrap();
            (plan.parameters / 2, plan.gradients / 2, plan.optimizer_state / 12, plan.communication)
        };
        let whole = model.parameters();
        assert_eq!(at(Zero::Off), (whole, whole, whole, 0));
        assert_eq!(at(Zero::One), (3 * shard, 3 * shard, shard, 0));
        // Twice the gradients of a padded layer.
        assert_eq!(at(Zero::Two), (3 * shard, shard, shard, 2 * (layer + 2) * 2));
        assert_eq!(at(Zero::Three), (shard, shard, shard, 2 * (layer + 2) * (2 + 2)));
    }

    /// Gradients of two units, of which one is reduced.
    #[test]
    fn buffers_hold_the_largest_units() {
        let model = ModelShape { vocabulary: 2048, ..ModelShape::preset("tiny").unwrap() };
        let at = |layout, stage| MemoryPlan::of_stage(&model, &layout, Attention::Flash, stage).unwrap().communication;
        let one = ParallelLayout { dp: 2, zero: Zero::Two, ..ParallelLayout::default() };
        let (embedding, layer) = (2048 * 128, 128 * (128 + 2 * 64 + 128 + 3 * 384 + 2));
        let head = embedding + 128;
        assert_eq!(at(one, 0), (head + embedding) * 2, "a micro-batch ends with the one and begins with the other");
        let two = ParallelLayout { pp: 2, ..one };
        let received = 2 * 1024 * 128 * 2;
        assert_eq!(at(two, 0), (embedding + layer) * 2 + received);
        assert_eq!(at(two, 1), (head + layer) * 2 + received);
        let of_three = ParallelLayout { unit_layers: 3, ..two };
        assert_eq!(at(of_three, 0), (3 * layer + embedding) * 2 + received, "and a unit of one layer");
        let tied = ModelShape { tied_embeddings: true, ..model.clone() };
        let plan = MemoryPlan::of_stage(&tied, &one, Attention::Flash, 0).unwrap();
        assert_eq!(plan.communication, (embedding + 2 * layer) * 2, "the head has begun with the embedding's");
    }

    #[test]
    fn the_head_keeps_what_is_in_flight_through_it() {
        let model = ModelShape::preset("tiny").unwrap();
        let base = ParallelLayout { micro_batches: 4, sequence_length: 64, ..ParallelLayout::default() };
        let one_layer = model.kept_activation_bytes(&base, Attention::Flash, 0) as u64;
        let (norm, logits) = (2 * 64 * 128 * 2, 64 * 512 * 2);
        let (gpipe, interleaved) = (crate::Schedule::Gpipe, crate::Schedule::Interleaved);
        // The layers that are kept, counted for each micro-batch in flight, and the micro-batches at the head.
        for (layout, layers, at_head) in [
            (base, 8, 1),
            (ParallelLayout { schedule: gpipe, ..base }, 4 * 8, 4),
            (ParallelLayout { pp: 2, ..base }, 4, 1),
            (ParallelLayout { pp: 2, schedule: gpipe, ..base }, 4 * 4, 4),
            // Two forwards of the first chunk, then one of the second.
            (ParallelLayout { pp: 2, schedule: interleaved, chunks: 2, ..base }, 3 * 2, 1),
        ] {
            let plan = MemoryPlan::of_stage(&model, &layout, Attention::Flash, layout.pp - 1).unwrap();
            assert_eq!(plan.activations, layers * one_layer + at_head * norm, "{layout:?}");
            assert_eq!(plan.workspace, (at_head + 1) * logits, "{layout:?}");
            if layout.pp > 1 {
                let first = MemoryPlan::of_stage(&model, &layout, Attention::Flash, 0).unwrap();
                assert_eq!((first.workspace, first.activations % one_layer), (0, 0), "{layout:?}");
            }
        }
    }

    /// `tiny-moe` on four replicas: each two have all experts between them.
    #[test]
    fn experts_are_on_the_ranks_that_share_them() {
        let model = ModelShape::preset("tiny-moe").unwrap();
        let experts = 8 * 8 * 3 * 128 * 96;
        let others = model.parameters() - experts;
        let at = |zero| {
            let layout = ParallelLayout { dp: 4, ep: 2, zero, ..ParallelLayout::default() };
            let plan = MemoryPlan::fullest(&model, &layout, Attention::Flash).unwrap();
            (plan.parameters / 2, plan.gradients / 2, plan.optimizer_state / 12)
        };
        let whole = others + experts / 2;
        let shard = others / 4 + experts / 2 / 2;
        assert_eq!(at(Zero::Off), (whole, whole, whole));
        assert_eq!(at(Zero::One), (whole, whole, shard));
        assert_eq!(at(Zero::Two), (whole, shard, shard));
        assert_eq!(at(Zero::Three), (shard, shard, shard));
    }

    #[test]
    fn a_token_in_several_experts_leaves_more_behind() {
        let model = ModelShape::preset("mixtral-8x7b").unwrap();
        let dense = ModelShape { experts: None, ..model.clone() };
        let layout = ParallelLayout { sequence_length: 1, ..ParallelLayout::default() };
        let kept = |model: &ModelShape| model.kept_activation_bytes(&layout, Attention::Flash, 0) as u64;
        // Another network's insides, what goes to both and comes back, what the router made, and what the sequence chose.
        assert_eq!(kept(&model) - kept(&dense), 2 * 3 * 14_336 + 2 * 2 * 2 * 4096 + 4 * (8 + 4 * 2) + 4 * 8);
    }

    /// Two copies of the model, or one that is folded; of either the activations of one micro-batch more than there are pieces.
    #[test]
    fn schedules_that_go_both_ways_hold_what_was_published() {
        let model = ModelShape::preset("tiny").unwrap();
        let base = ParallelLayout { pp: 4, micro_batches: 16, chunks: 2, ..ParallelLayout::default() };
        let one_layer = model.kept_activation_bytes(&base, Attention::Flash, 0) as u64;
        let plan = |schedule, stage| {
            let layout = ParallelLayout { schedule, ..base };
            MemoryPlan::moments_of_stage(&model, &layout, Attention::Flash, stage).unwrap()[1]
        };
        let all = |schedule| (0..4).map(|stage| plan(schedule, stage).parameters / 2).sum::<u64>();
        assert_eq!(all(crate::Schedule::DualPipeV), model.parameters());
        assert_eq!(all(crate::Schedule::DualPipe), 2 * model.parameters());
        assert_eq!(plan(crate::Schedule::DualPipe, 1).activations, (4 + 1) * 2 * one_layer);
        assert_eq!(plan(crate::Schedule::DualPipeV, 1).activations, (8 + 1) * one_layer);
    }

    #[test]
    fn earlier_stages_hold_more_micro_batches() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let layout = ParallelLayout { pp: 4, micro_batches: 16, sequence_length: 4096, ..ParallelLayout::default() };
        let activations = |layout: &ParallelLayout, stage| {
            MemoryPlan::of_stage(&model, layout, Attention::Flash, stage).unwrap().activations
        };
        assert_eq!(activations(&layout, 0), 4 * activations(&layout, 2) / 2);
        assert!(activations(&layout, 3) < activations(&layout, 2));
        let gpipe = ParallelLayout { schedule: crate::Schedule::Gpipe, ..layout };
        assert_eq!(activations(&gpipe, 0), 4 * activations(&layout, 0));
        let full = ParallelLayout { recompute: Recompute::Full, ..layout };
        assert!(activations(&full, 0) * 4 < activations(&layout, 0));
    }
}
