//! The process groups of a layout: slices of the grid of ranks, numbered the same on every rank.

use stepscope_plan::{Axis, ParallelLayout};
use stepscope_traces::{Group, GroupInfo, Rank};

/// Ranks that talk to each other, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Its number.
    pub group: Group,
    /// Its members.
    pub ranks: Vec<Rank>,
    /// Which of them this rank is.
    pub index: usize,
}

impl ProcessGroup {
    /// How many members it has.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }
}

/// The groups of one rank: those that have someone to talk to.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Everyone.
    pub world: Option<ProcessGroup>,
    /// Who shares the matrices.
    pub tensor: Option<ProcessGroup>,
    /// Who has parts of the same sequences.
    pub context: Option<ProcessGroup>,
    /// Who holds the same weights, or shares them.
    pub data: Option<ProcessGroup>,
    /// Who holds the same share of them, where there are groups of replicas that share.
    pub replicate: Option<ProcessGroup>,
    /// Where activations go through. Not the one for gradients: there are no labels on messages, only their order.
    pub forward: Option<ProcessGroup>,
    /// Where gradients come back.
    pub backward: Option<ProcessGroup>,
    /// The two ends of the pipeline, for an embedding they both hold.
    pub ends: Option<ProcessGroup>,
    /// Who shares the experts.
    pub expert: Option<ProcessGroup>,
    /// Who shares the same experts. Those that are in `replicate` hold the same, too.
    pub expert_data: Option<ProcessGroup>,
}

/// What a group is for; the pipeline has two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    World,
    Tensor,
    Context,
    Data,
    Replicate,
    Forward,
    Backward,
    Ends,
    Expert,
    ExpertData,
}

impl Use {
    const ALL: [Use; 10] = [
        Use::World,
        Use::Tensor,
        Use::Context,
        Use::Data,
        Use::Replicate,
        Use::Forward,
        Use::Backward,
        Use::Ends,
        Use::Expert,
        Use::ExpertData,
    ];

    fn members(self, layout: &ParallelLayout, rank: u64) -> Vec<u64> {
        match self {
            Use::World => (0..layout.world_size()).collect(),
            Use::Tensor => layout.tensor_group(rank),
            Use::Context => layout.context_group(rank),
            Use::Data => layout.shard_group(rank),
            Use::Replicate => layout.replicate_group(rank),
            Use::Forward | Use::Backward => layout.pipeline_group(rank),
            Use::Ends => {
                let stages = layout.pipeline_group(rank);
                let ends = [stages[0], stages[stages.len() - 1]];
                if ends.contains(&rank) { ends.to_vec() } else { Vec::new() }
            }
            Use::Expert => layout.expert_group(rank),
            Use::ExpertData => layout.expert_data_group(rank),
        }
    }

    fn axis(self, layout: &ParallelLayout) -> Axis {
        match self {
            Use::World => Axis::World,
            Use::Tensor => Axis::Tensor,
            Use::Context => Axis::Context,
            Use::Data | Use::Replicate => layout.replica_axis(),
            Use::Forward | Use::Backward => Axis::Pipeline,
            Use::Ends => Axis::Embedding,
            Use::Expert => Axis::Expert,
            Use::ExpertData => layout.replica_axis(),
        }
    }
}

/// Every group of a layout that has more than one member; a group's number is its place here.
fn all(layout: &ParallelLayout) -> Vec<(Use, Vec<u64>)> {
    let mut groups = Vec::new();
    for purpose in Use::ALL {
        // A tied embedding is on one rank when there is one stage.
        if purpose == Use::Ends && layout.pp == 1 {
            continue;
        }
        // Where nobody shares experts, all replicas hold the same.
        if purpose == Use::ExpertData && layout.ep == 1 {
            continue;
        }
        for rank in 0..layout.world_size() {
            let members = purpose.members(layout, rank);
            if members.len() > 1 && members[0] == rank {
                groups.push((purpose, members));
            }
        }
    }
    groups
}

impl Groups {
    /// The groups of a rank.
    pub fn of(layout: &ParallelLayout, rank: Rank) -> Groups {
        let mut groups = Groups::default();
        for (number, (purpose, members)) in all(layout).into_iter().enumerate() {
            let Some(index) = members.iter().position(|member| *member == u64::from(rank.0)) else { continue };
            let ranks = members.into_iter().map(|member| Rank(member as u32)).collect();
            let group = ProcessGroup { group: Group(number as u32), ranks, index };
            let slot = match purpose {
                Use::World => &mut groups.world,
                Use::Tensor => &mut groups.tensor,
                Use::Context => &mut groups.context,
                Use::Data => &mut groups.data,
                Use::Replicate => &mut groups.replicate,
                Use::Forward => &mut groups.forward,
                Use::Backward => &mut groups.backward,
                Use::Ends => &mut groups.ends,
                Use::Expert => &mut groups.expert,
                Use::ExpertData => &mut groups.expert_data,
            };
            *slot = Some(group);
        }
        if layout.ep == 1 {
            groups.expert_data = groups.data.clone();
        }
        groups
    }

    /// Every group of a layout, as a run describes them.
    pub fn describe(layout: &ParallelLayout) -> Vec<GroupInfo> {
        let describe = |(number, (purpose, members)): (usize, (Use, Vec<u64>))| GroupInfo {
            group: Group(number as u32),
            axis: purpose.axis(layout),
            ranks: members.into_iter().map(|rank| Rank(rank as u32)).collect(),
        };
        all(layout).into_iter().enumerate().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_agree_on_it() {
        let layout = ParallelLayout { dp: 2, tp: 2, cp: 2, pp: 3, ..ParallelLayout::default() };
        let described = Groups::describe(&layout);
        for rank in (0..24).map(Rank) {
            let Groups { world, tensor, context, data, replicate, forward, backward, ends, expert, expert_data } =
                Groups::of(&layout, rank);
            assert_eq!((replicate, expert, &expert_data), (None, None, &data));
            for (group, size) in [(world, 24), (tensor, 2), (context, 2), (data, 4), (forward, 3), (backward, 3)] {
                let group = group.unwrap();
                assert_eq!((group.size(), group.ranks[group.index]), (size, rank));
                assert_eq!(described[group.group.0 as usize].ranks, group.ranks);
            }
            let stage = layout.coordinates(rank.0.into()).stage;
            assert_eq!(ends.is_some(), stage != 1);
        }
        assert!(Groups::describe(&ParallelLayout::default()).is_empty());
    }

    #[test]
    fn replicas_that_follow_each_other_share() {
        let layout = ParallelLayout { dp: 4, tp: 2, dp_replicate: 2, ..ParallelLayout::default() };
        let Groups { data, replicate, .. } = Groups::of(&layout, Rank(5));
        let of = |group: Option<ProcessGroup>| group.map(|group| (group.ranks, group.index));
        assert_eq!(of(data), Some((vec![Rank(5), Rank(7)], 0)));
        assert_eq!(of(replicate), Some((vec![Rank(1), Rank(5)], 1)));
    }

    #[test]
    fn replicas_share_experts_with_their_neighbors() {
        let of = |dp, cp, dp_replicate| {
            let layout = ParallelLayout { dp, cp, ep: 2, tp: 2, dp_replicate, ..ParallelLayout::default() };
            let Groups { expert, expert_data, replicate, .. } = Groups::of(&layout, Rank(5));
            [expert, expert_data, replicate].map(|group| {
                let ranks = group.map(|group| group.ranks).unwrap_or_default();
                ranks.iter().map(|rank| rank.0).collect::<Vec<_>>()
            })
        };
        assert_eq!(of(4, 1, 1), [vec![5, 7], vec![1, 5], vec![]]);
        assert_eq!(of(2, 2, 1), [vec![5, 7], vec![1, 5], vec![]]);
        assert_eq!(of(4, 1, 2), [vec![5, 7], vec![], vec![1, 5]]);
    }
}
