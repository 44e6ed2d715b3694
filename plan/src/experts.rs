//! Mixtures of experts: which layers have them, and which rank has which.

use std::ops::Range;

use crate::{
    error::PlanError,
    layout::{Coordinates, ParallelLayout},
    shape::{Experts, ModelShape},
};

impl Experts {
    /// Says what cannot be.
    pub(crate) fn check(&self, layers: u64) -> Result<(), PlanError> {
        let Experts { count, top_k, shared, dense_layers, dense_ffn, router_bias: _ } = *self;
        let wrong = |why: String| Err(PlanError::Shape(why));
        if top_k > count {
            return wrong(format!("top_k {top_k} is impossible with {count} experts"));
        }
        for (what, value, most) in [("shared", shared, 1 << 16), ("dense_ffn", dense_ffn, 1 << 22)] {
            if value > most {
                return wrong(format!("{what} is {value}; the maximum is {most}"));
            }
        }
        if dense_layers >= layers && dense_layers > 0 {
            return wrong(format!("{dense_layers} dense layers of {layers} leave none with experts"));
        }
        if (dense_layers == 0) != (dense_ffn == 0) {
            return wrong("dense_layers and dense_ffn need each other".into());
        }
        Ok(())
    }
}

/// How many layers there are with and without experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) dense: u64,
    pub(crate) sparse: u64,
}

impl ModelShape {
    /// The experts of a layer, if it has any.
    pub fn layer_experts(&self, layer: u64) -> Option<Experts> {
        self.experts.filter(|experts| layer >= experts.dense_layers)
    }

    /// Width of the network that every token goes through in a layer: nothing, where all tokens go through experts they chose.
    pub fn dense_width(&self, layer: u64) -> u64 {
        match (self.layer_experts(layer), self.experts) {
            (Some(experts), _) => experts.shared * self.ffn,
            (None, Some(experts)) => experts.dense_ffn,
            (None, None) => self.ffn,
        }
    }

    /// Width of all the networks together that a token goes through in a layer.
    pub fn active_width(&self, layer: u64) -> u64 {
        self.dense_width(layer) + self.layer_experts(layer).map_or(0, |experts| experts.top_k * self.ffn)
    }

    /// How many of these layers have experts.
    pub(crate) fn layers_of(&self, layers: Range<u64>) -> Layers {
        let dense_before = self.experts.map_or(u64::MAX, |experts| experts.dense_layers);
        let dense = dense_before.clamp(layers.start, layers.end) - layers.start;
        Layers { dense, sparse: layers.end - layers.start - dense }
    }

    /// A layer of each kind there is: the first, and the last.
    pub(crate) fn kinds_of_layers(&self) -> (u64, u64) {
        (0, self.layers - 1)
    }
}

impl ParallelLayout {
    /// How many layers of a stage have experts.
    pub(crate) fn layers_of_stage(&self, model: &ModelShape, stage: u64) -> Layers {
        let chunks = (0..self.chunks).map(|chunk| model.layers_of(self.chunk_layers(model, stage, chunk)));
        chunks.fold(Layers::default(), |all, of| Layers { dense: all.dense + of.dense, sparse: all.sparse + of.sparse })
    }

    /// Ranks that share the same experts, as ZeRO says, or all that hold them where there is one group of replicas.
    pub fn expert_replicas(&self) -> u64 {
        self.shards() / self.ep
    }

    /// Which of those that share the experts a rank is: replicas do, and parts of sequences beside each other.
    pub fn expert_index(&self, at: Coordinates) -> u64 {
        (at.dp * self.cp + at.cp) % self.ep
    }

    /// Whether a rank is the first of all that hold the same experts.
    pub fn is_first_with_experts(&self, at: Coordinates) -> bool {
        at.dp * self.cp + at.cp < self.ep
    }

    /// The ranks among which this rank's tokens go to experts: neighbors among replicas and parts of sequences.
    pub fn expert_group(&self, rank: u64) -> Vec<u64> {
        let at = self.coordinates(rank);
        let first = (at.dp * self.cp + at.cp) / self.ep * self.ep;
        self.data_group(rank)[first as usize..][..self.ep as usize].to_vec()
    }

    /// The ranks that share the same experts as this one and see other tokens. Other groups of replicas have such ranks, too: those
    /// of [`replicate_group`](Self::replicate_group).
    pub fn expert_data_group(&self, rank: u64) -> Vec<u64> {
        let index = self.expert_index(self.coordinates(rank));
        self.shard_group(rank).into_iter().skip(index as usize).step_by(self.ep as usize).collect()
    }

    /// Which experts of a layer the rank at these coordinates holds.
    pub fn experts_here(&self, experts: Experts, at: Coordinates) -> Range<u64> {
        let here = experts.count / self.ep;
        let first = self.expert_index(at) * here;
        first..first + here
    }

    /// Bytes of how often each sequence of a micro-batch chose each expert, in fp32.
    pub(crate) fn choice_count_bytes(&self, experts: Experts) -> u64 {
        4 * self.micro_batch * experts.count
    }

    /// Says why experts cannot be spread like this.
    pub(crate) fn check_experts(&self, model: &ModelShape) -> Result<(), PlanError> {
        let ParallelLayout { dp, cp, ep, tp, dp_replicate: groups, .. } = *self;
        let wrong = |why: String| Err(PlanError::Layout(why));
        let Some(experts) = model.experts else {
            return if ep > 1 { wrong(format!("ep {ep} needs a model with experts")) } else { Ok(()) };
        };
        // Those of a group of replicas, if all groups are equal.
        if !self.replicas().is_multiple_of(groups * ep) {
            let parts = if cp > 1 { format!(" times cp {cp}") } else { String::new() };
            let groups = if groups > 1 { format!(" in {groups} groups") } else { String::new() };
            let who = if cp > 1 { "replicas and parts of sequences" } else { "replicas" };
            return wrong(format!(
                "dp {dp}{parts}{groups} is not divisible by ep {ep}: expert-parallel ranks are {who}"
            ));
        }
        if !experts.count.is_multiple_of(ep) {
            return wrong(format!("{} experts are not divisible by ep {ep}", experts.count));
        }
        if !experts.dense_ffn.is_multiple_of(tp) {
            return wrong(format!("{} of dense_ffn are not divisible by tp {tp}", experts.dense_ffn));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::Zero;

    #[test]
    fn what_does_not_work_is_said() {
        let model = ModelShape::preset("mixtral-8x7b").unwrap();
        let at = |dp, ep| ParallelLayout { dp, ep, ..ParallelLayout::default() };
        assert_eq!(at(8, 8).check(&model), Ok(()));
        let parts = |dp, cp, ep| ParallelLayout { cp, sequence_length: 768, ..at(dp, ep) };
        assert_eq!(parts(1, 4, 4).check(&model), Ok(()));
        let groups = |dp, ep| ParallelLayout { dp_replicate: 2, zero: Zero::Two, ..at(dp, ep) };
        assert_eq!(groups(4, 2).check(&model), Ok(()));
        let dense = ModelShape { experts: None, ..model.clone() };
        for (model, layout, why) in [
            (&model, at(3, 2), "dp 3 is not divisible by ep 2: expert-parallel ranks are replicas"),
            (&model, at(3, 3), "8 experts are not divisible by ep 3"),
            (&model, at(16, 16), "8 experts are not divisible by ep 16"),
            (&dense, at(2, 2), "ep 2 needs a model with experts"),
            (&model, at(2, 0), "ep is 0"),
            (
                &model,
                parts(2, 3, 4),
                "dp 2 times cp 3 is not divisible by ep 4: expert-parallel ranks are replicas and parts",
            ),
            (&model, groups(4, 4), "dp 4 in 2 groups is not divisible by ep 4"),
        ] {
            let error = layout.check(model).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let with = |experts| ModelShape { experts: Some(experts), ..model.clone() }.check().unwrap_err().to_string();
        let usual = Experts { count: 8, top_k: 2, ..Experts::default() };
        assert!(with(Experts { dense_layers: 32, dense_ffn: 8, ..usual }).contains("leave none with experts"));
        assert!(with(Experts { dense_layers: 1, ..usual }).contains("dense_layers and dense_ffn need each other"));
    }

    #[test]
    fn dense_layers_come_first() {
        let model = ModelShape::preset("deepseek-moe-16b").unwrap();
        assert_eq!(model.layers_of(0..5), Layers { dense: 1, sparse: 4 });
        assert_eq!(model.layers_of(5..9), Layers { dense: 0, sparse: 4 });
        assert_eq!((model.active_width(0), model.active_width(1)), (10_944, (6 + 2) * 1408));
        let dense = ModelShape::preset("tiny").unwrap();
        assert_eq!(dense.layers_of(2..8), Layers { dense: 6, sparse: 0 });
        assert_eq!(dense.dense_width(3), 384);
    }

    proptest! {
        #[test]
        fn groups_hold_every_expert_once(
            replicas in 1..4_u64, cp in 1..4_u64, groups in 1..3_u64, tp in 1..3_u64, pp in 1..3_u64, which in 0..20_usize,
        ) {
            let (dp, shards) = (replicas * groups, replicas * cp);
            let divisors: Vec<u64> = (1..=shards).filter(|ep| shards.is_multiple_of(*ep)).collect();
            let ep = divisors[which % divisors.len()];
            let layout = ParallelLayout { dp, cp, ep, tp, pp, dp_replicate: groups, ..ParallelLayout::default() };
            let experts = Experts { count: 2 * ep, top_k: 1, ..Experts::default() };
            for rank in 0..layout.world_size() {
                let (among, same) = (layout.expert_group(rank), layout.expert_data_group(rank));
                prop_assert_eq!((among.len() as u64, same.len() as u64), (ep, layout.expert_replicas()));
                prop_assert!(among.contains(&rank) && same.contains(&rank));
                let here = |rank: &u64| layout.experts_here(experts, layout.coordinates(*rank));
                prop_assert!(among.iter().flat_map(here).eq(0..experts.count));
                prop_assert!(among.iter().chain(&same).all(|other| layout.shard_group(rank).contains(other)));
                // Those who share, and those of other groups.
                let mut all = same.iter().flat_map(|rank| layout.replicate_group(*rank)).collect::<Vec<_>>();
                all.sort_unstable();
                let mut alike = layout.data_group(rank);
                alike.retain(|other| here(other) == here(&rank));
                prop_assert_eq!(all, alike);
            }
        }
    }

    #[test]
    fn parts_of_sequences_share_experts_before_replicas_do() {
        let of = |dp, cp, ep| ParallelLayout { dp, cp, ep, tp: 2, ..ParallelLayout::default() };
        assert_eq!(of(2, 2, 2).expert_group(5), [5, 7]);
        assert_eq!(of(2, 2, 2).expert_data_group(5), [1, 5]);
        assert_eq!(of(2, 2, 4).expert_group(5), [1, 3, 5, 7]);
        assert_eq!(of(4, 1, 2).expert_group(5), [5, 7]);
        let groups = ParallelLayout { dp_replicate: 2, ..of(4, 2, 2) };
        assert_eq!((groups.expert_data_group(9), groups.replicate_group(9)), (vec![9, 13], vec![1, 9]));
    }
}
