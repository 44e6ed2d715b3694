//! Which groups ranks were in, put together from what each of them says of itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stepscope_plan::Axis;

use crate::{
    ids::{Group, Rank},
    notes::NamedGroups,
    run_info::GroupInfo,
};

/// A process group that a rank was in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Its number in the spans, the same on all its ranks.
    pub group: Group,
    /// The rank's place in it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// How many ranks it has.
    pub size: u32,
    /// What the program calls it, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its ranks, in their order in it, if the rank tells all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
}

impl Membership {
    /// That of a rank in a group of which it lists the ranks. The list may be cut short where the size is told beside it.
    pub(crate) fn listed(
        rank: Rank,
        group: Group,
        ranks: Vec<Rank>,
        size: Option<u32>,
        name: Option<String>,
    ) -> Option<Membership> {
        let size = size.or_else(|| u32::try_from(ranks.len()).ok()).filter(|size| *size > 0)?;
        let index = ranks.iter().position(|one| *one == rank).and_then(|index| u32::try_from(index).ok());
        let distinct = ranks.iter().collect::<BTreeSet<_>>().len();
        let ranks = if index.is_some() && distinct == size as usize { ranks } else { Vec::new() };
        Some(Membership { group, index, size, name, ranks })
    }
}

/// What a rank says of the groups that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Memberships<'a> {
    pub(crate) rank: Rank,
    /// The communicators, in the order in which they were made.
    pub(crate) communicators: &'a [Membership],
    /// What its program calls its groups, if that is known.
    pub(crate) named: Option<&'a NamedGroups>,
}

/// The groups of which all ranks are known, though maybe not seen, and along what they talk, by what each rank is in.
pub(crate) fn groups<'a>(
    ranks: impl Iterator<Item = Memberships<'a>> + Clone,
    world_size: Option<u32>,
) -> Vec<GroupInfo> {
    // A launcher's own process is in none.
    let all_seen = ranks.clone().filter(|of_rank| !of_rank.communicators.is_empty()).count();
    let all_told = world_size.map_or(all_seen, |ranks| ranks as usize);
    let mut members: BTreeMap<Group, Vec<(&Membership, Memberships<'_>)>> = BTreeMap::new();
    for of_rank in ranks {
        for membership in of_rank.communicators {
            members.entry(membership.group).or_default().push((membership, of_rank));
        }
    }
    let describe = |(group, mut members): (Group, Vec<(&Membership, Memberships<'_>)>)| {
        members.sort_by_key(|(membership, of_rank)| (membership.index.unwrap_or(u32::MAX), of_rank.rank));
        let (first, of_first) = *members.first()?;
        let seen: Vec<Rank> = members.iter().map(|(_, of_rank)| of_rank.rank).collect();
        let listed = members.iter().map(|(member, _)| &member.ranks).find(|ranks| !ranks.is_empty());
        let (ranks, is_whole, is_world) = match listed {
            Some(ranks) => (ranks.clone(), seen.iter().all(|rank| ranks.contains(rank)), ranks.len() == all_told),
            None => {
                let mut places = (0..).zip(&members);
                // Who is not told its place is so because a list is cut short: lists are in order.
                let in_order = places
                    .all(|(at, (member, _))| member.size == first.size && member.index.is_none_or(|index| index == at));
                // A process may have several places, and is one rank.
                let is_whole = in_order && seen.iter().collect::<BTreeSet<_>>().len() == first.size as usize;
                (seen, is_whole, members.len() == all_seen)
            }
        };
        let named = of_first.axis_of(first, &ranks);
        let axis = named.or_else(|| axis(first.name.as_deref().unwrap_or_default(), is_world));
        Some(GroupInfo { group, axis: axis.filter(|_| is_whole)?, ranks })
    };
    members.into_iter().filter_map(describe).collect()
}

impl Memberships<'_> {
    /// The axis of a communicator, by what the program calls its groups. Where it made as many of both, of the same sizes, they
    /// are each other's. Else, a communicator is made when a group is used first, and there may be several groups of its ranks:
    /// then it is their only axis that is no combination of others.
    fn axis_of(&self, communicator: &Membership, ranks: &[Rank]) -> Option<Axis> {
        let groups = &self.named?.0;
        let sizes = groups.iter().map(|group| group.ranks.len());
        if self.communicators.iter().map(|one| one.size as usize).eq(sizes) {
            let place = self.communicators.iter().position(|one| one.group == communicator.group)?;
            return axis(&groups[place].name, false);
        }
        let same = groups.iter().filter(|group| group.ranks == ranks);
        let axes: BTreeSet<Axis> = same.filter_map(|group| axis_named(&group.name)).collect();
        let single: Vec<&Axis> = axes.iter().filter(|axis| axis.is_single()).collect();
        match single.as_slice() {
            [] => axes.first().copied(),
            [axis] => Some(**axis),
            _ => None,
        }
    }
}

/// Along what a group's ranks talk, as far as what it is called tells, or that it has all ranks.
pub(crate) fn axis(description: &str, is_world: bool) -> Option<Axis> {
    // PyTorch's name for the group of all ranks; a number may follow it.
    let is_world = is_world || description.split(':').next() == Some("default_pg");
    axis_named(description).or(is_world.then_some(Axis::World))
}

/// The axis that a group is called after, in the words of PyTorch's meshes, of Megatron and of DeepSpeed.
fn axis_named(description: &str) -> Option<Axis> {
    let lower = description.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric());
    let says = |wanted: &[&str]| words.clone().any(|word| wanted.contains(&word));
    let tensor = says(&["tp", "tensor", "etp"]);
    let pipeline = says(&["pp", "pipeline", "pipe"]);
    let data = says(&["dp", "data", "fsdp", "ddp", "hsdp", "edp", "shard", "replicate"]);
    let context = says(&["cp", "context"]);
    let expert = says(&["ep", "expert", "experts"]);
    let sequence = says(&["sp", "sequence", "ulysses"]);
    // Megatron's word for what holds one replica; beside the name of an axis it says nothing more.
    let model = says(&["model", "mp"]);
    if says(&["embedding", "embd"]) {
        return Some(Axis::Embedding);
    }
    match (tensor, pipeline, data, context) {
        (true, true, ..) => Some(Axis::TensorPipeline),
        (true, _, true, _) => Some(Axis::TensorData),
        (true, _, _, true) => Some(Axis::TensorContext),
        // Of Megatron's two, the one without `MODEL` is the shards of single experts.
        (true, ..) if expert && model => Some(Axis::TensorExpert),
        (true, ..) => Some(Axis::Tensor),
        (_, true, ..) => Some(Axis::Pipeline),
        (_, _, true, true) => Some(Axis::DataContext),
        // Those of experts, too: replicas of the same ones.
        (_, _, true, _) => Some(Axis::Data),
        _ if expert => Some(Axis::Expert),
        (.., true) => Some(Axis::Context),
        _ if sequence => Some(Axis::Sequence),
        _ if model => Some(Axis::TensorPipeline),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes::NamedGroup;

    #[test]
    fn groups_are_along_what_they_are_called() {
        for (description, is_world, expected) in [
            ("default_pg", false, Some(Axis::World)),
            ("default_pg:0", false, Some(Axis::World)),
            ("undefined", true, Some(Axis::World)),
            ("mesh_tp", false, Some(Axis::Tensor)),
            ("mesh_tp:12", false, Some(Axis::Tensor)),
            ("mesh_pp", false, Some(Axis::Pipeline)),
            ("mesh_dp_shard", false, Some(Axis::Data)),
            ("DATA_PARALLEL_GROUP", false, Some(Axis::Data)),
            ("DATA_PARALLEL_GROUP", true, Some(Axis::Data)),
            ("DATA_PARALLEL_GROUP_WITH_CP", false, Some(Axis::DataContext)),
            ("DATA_PARALLEL_GROUP_WITH_CP_GLOO", false, Some(Axis::DataContext)),
            ("TENSOR_MODEL_PARALLEL_GROUP", false, Some(Axis::Tensor)),
            ("tensor-model-parallel", false, Some(Axis::Tensor)),
            ("PIPELINE_MODEL_PARALLEL_GROUP", false, Some(Axis::Pipeline)),
            ("CONTEXT_PARALLEL_GROUP", false, Some(Axis::Context)),
            ("EXPERT_MODEL_PARALLEL_GROUP", false, Some(Axis::Expert)),
            ("EXPERT_TENSOR_PARALLEL_GROUP", false, Some(Axis::Tensor)),
            ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", false, Some(Axis::TensorExpert)),
            ("EXPERT_DATA_PARALLEL_GROUP", false, Some(Axis::Data)),
            ("TENSOR_AND_DATA_PARALLEL_GROUP", false, Some(Axis::TensorData)),
            ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", false, Some(Axis::TensorContext)),
            ("MODEL_PARALLEL_GROUP", false, Some(Axis::TensorPipeline)),
            ("EMBEDDING_GROUP", false, Some(Axis::Embedding)),
            ("mesh_dp_replicate", false, Some(Axis::Data)),
            ("mesh_dp_shard_cp", false, Some(Axis::DataContext)),
            ("mesh_dp_cp", false, Some(Axis::DataContext)),
            ("mesh_cp", false, Some(Axis::Context)),
            ("mesh_ep", false, Some(Axis::Expert)),
            ("mesh_sp", false, Some(Axis::Sequence)),
            ("fsdp", false, Some(Axis::Data)),
            ("undefined", false, None),
            ("tpu", false, None),
            ("", false, None),
        ] {
            assert_eq!(axis(description, is_world), expected, "{description}");
        }
    }

    fn all_of(ranks: &[(Rank, Vec<Membership>)], world_size: Option<u32>) -> Vec<GroupInfo> {
        let told = ranks.iter().map(|(rank, communicators)| Memberships { rank: *rank, communicators, named: None });
        groups(told, world_size)
    }

    #[test]
    fn a_group_is_described_when_all_its_ranks_are_known() {
        let member = |group, index, size, name: Option<&str>| Membership {
            group: Group(group),
            index: Some(index),
            size,
            name: name.map(str::to_owned),
            ranks: Vec::new(),
        };
        let rank = |rank, memberships: Vec<Membership>| (Rank(rank), memberships);
        let ranks = [
            rank(0, vec![member(7, 1, 2, None), member(8, 0, 2, Some("mesh_tp")), member(9, 0, 2, Some("mesh_dp"))]),
            rank(1, vec![member(7, 0, 2, None), member(8, 0, 2, Some("mesh_tp")), member(9, 1, 3, Some("mesh_dp"))]),
            rank(2, Vec::new()),
        ];
        let described = |ranks: &[(Rank, Vec<Membership>)]| all_of(ranks, None);
        let world = GroupInfo { group: Group(7), axis: Axis::World, ranks: vec![Rank(1), Rank(0)] };
        assert_eq!(
            described(&ranks),
            [world],
            "two ranks say to be the same one, and one says that another is missing"
        );
        assert_eq!(described(&[]), []);
    }

    #[test]
    fn a_group_that_one_rank_lists_is_described_by_it() {
        let told = |rank, listed: &[u32], size, name: &str| {
            let ranks = listed.iter().copied().map(Rank).collect();
            let own = Membership::listed(Rank(rank), Group(7), ranks, size, Some(name.into()));
            let told = [(Rank(rank), own.into_iter().collect())];
            all_of(&told, Some(4)).into_iter().map(|group| (group.axis, group.ranks.len())).next()
        };
        assert_eq!(told(2, &[0, 2], Some(2), "mesh_tp"), Some((Axis::Tensor, 2)));
        assert_eq!(told(2, &[0, 2], None, "mesh_tp"), Some((Axis::Tensor, 2)));
        assert_eq!(told(2, &[0, 1, 2, 3], Some(4), ""), Some((Axis::World, 4)));
        assert_eq!(told(2, &[0, 2], Some(2), ""), None);
        assert_eq!(told(2, &[0, 2], Some(64), "mesh_tp"), None, "the list is cut short");
        assert_eq!(told(2, &[0, 0], Some(2), "mesh_tp"), None);
        assert_eq!(told(3, &[0, 2], Some(2), "mesh_tp"), None, "it is not in it");
        let cut_short = Membership::listed(Rank(9), Group(7), vec![Rank(0)], Some(64), None);
        assert_eq!(cut_short.map(|own| (own.index, own.size)), Some((None, 64)));
        assert_eq!(Membership::listed(Rank(0), Group(7), Vec::new(), None, None), None);
    }

    #[test]
    fn a_group_of_which_all_ranks_are_there_is_described_though_lists_are_cut_short() {
        let own = |rank| {
            let cut_short = [0, 2].map(Rank).to_vec();
            let own = Membership::listed(Rank(rank), Group(7), cut_short, Some(4), Some("mesh_tp".into()));
            (Rank(rank), own.into_iter().collect())
        };
        let ranks = [0, 2, 4, 6].map(Rank).to_vec();
        assert_eq!(all_of(&[6, 0, 4, 2].map(own), Some(8)), [GroupInfo { group: Group(7), axis: Axis::Tensor, ranks }]);
        assert_eq!(all_of(&[0, 4, 6].map(own), Some(8)), []);
    }

    #[test]
    fn communicators_have_the_axis_of_what_the_program_calls_its_groups() {
        let named = |groups: &[(&str, &[u32])]| {
            let group = |(name, ranks): &(&str, &[u32])| NamedGroup {
                name: (*name).to_owned(),
                ranks: ranks.iter().copied().map(Rank).collect(),
            };
            NamedGroups(groups.iter().map(group).collect())
        };
        let member =
            |group, size| Membership { group: Group(group), index: Some(0), size, name: None, ranks: Vec::new() };
        let axes = |communicators: &[Membership], groups: &NamedGroups, of: &[u32]| {
            let memberships = Memberships { rank: Rank(0), communicators, named: Some(groups) };
            let ranks: Vec<Rank> = of.iter().copied().map(Rank).collect();
            communicators.iter().map(|one| memberships.axis_of(one, &ranks)).collect::<Vec<_>>()
        };
        let made = named(&[("default_pg", &[0, 1]), ("mesh_tp", &[0]), ("mesh_dp", &[0, 1])]);
        let communicators = [member(1, 2), member(2, 1), member(3, 2)];
        assert_eq!(axes(&communicators, &made, &[0, 1]), [Some(Axis::World), Some(Axis::Tensor), Some(Axis::Data)]);
        // Made when they are used: only the ranks tell.
        let megatron = named(&[("default_pg", &[0, 1]), ("TENSOR_MODEL_PARALLEL_GROUP", &[0, 1]), ("PP", &[0, 2])]);
        let more = named(&[("TENSOR_AND_DATA_PARALLEL_GROUP", &[0, 1]), ("TENSOR_MODEL_PARALLEL_GROUP", &[0, 1])]);
        assert_eq!(axes(&[member(1, 2)], &megatron, &[0, 1]), [Some(Axis::Tensor)]);
        assert_eq!(axes(&[member(1, 2)], &megatron, &[0, 2]), [Some(Axis::Pipeline)]);
        assert_eq!(axes(&[member(1, 2)], &more, &[0, 1]), [Some(Axis::Tensor)]);
        let two = named(&[("mesh_ep", &[0, 1]), ("mesh_dp", &[0, 1])]);
        assert_eq!(axes(&[member(1, 2)], &two, &[0, 1]), [None], "how it is used has to tell");
        assert_eq!(axes(&[member(1, 2)], &two, &[0, 3]), [None]);
    }
}
