//! Which groups ranks were in, put together from what each of them says of itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stepscope_plan::Axis;

use crate::{
    ids::{Group, Rank},
    run_info::GroupInfo,
};

/// A process group that a rank was in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Its number in the spans, the same on all its ranks.
    pub group: Group,
    /// The rank's place in it.
    pub index: u32,
    /// How many ranks it has.
    pub size: u32,
    /// What the program calls it, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The groups of which all ranks are known, and along what they talk, by what each rank is in.
pub(crate) fn groups<'a>(ranks: impl Iterator<Item = (Rank, &'a [Membership])> + Clone) -> Vec<GroupInfo> {
    // A launcher's own process is in none.
    let world_size = ranks.clone().filter(|(_, memberships)| !memberships.is_empty()).count();
    let mut members: BTreeMap<Group, Vec<(&Membership, Rank)>> = BTreeMap::new();
    for (rank, memberships) in ranks {
        for membership in memberships {
            members.entry(membership.group).or_default().push((membership, rank));
        }
    }
    let describe = |(group, mut members): (Group, Vec<(&Membership, Rank)>)| {
        members.sort_by_key(|(membership, _)| membership.index);
        let (first, _) = *members.first()?;
        let ranks: Vec<Rank> = members.iter().map(|(_, rank)| *rank).collect();
        let is_in_order = (0..).zip(&members).all(|(at, (member, _))| (member.index, member.size) == (at, first.size));
        // A process may have several places, and is one rank.
        let is_whole = is_in_order && ranks.iter().collect::<BTreeSet<_>>().len() == first.size as usize;
        let is_world = members.len() == world_size;
        let axis = axis(first.name.as_deref().unwrap_or_default(), is_world).filter(|_| is_whole)?;
        Some(GroupInfo { group, axis, ranks })
    };
    members.into_iter().filter_map(describe).collect()
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

    #[test]
    fn a_group_is_described_when_all_its_ranks_are_known() {
        let member = |group, index, size, name: Option<&str>| Membership {
            group: Group(group),
            index,
            size,
            name: name.map(str::to_owned),
        };
        let rank = |rank, memberships: Vec<Membership>| (Rank(rank), memberships);
        let ranks = [
            rank(0, vec![member(7, 1, 2, None), member(8, 0, 2, Some("mesh_tp")), member(9, 0, 2, Some("mesh_dp"))]),
            rank(1, vec![member(7, 0, 2, None), member(8, 0, 2, Some("mesh_tp")), member(9, 1, 3, Some("mesh_dp"))]),
            rank(2, Vec::new()),
        ];
        let described = |ranks: &[(Rank, Vec<Membership>)]| {
            groups(ranks.iter().map(|(rank, memberships)| (*rank, memberships.as_slice())))
        };
        let world = GroupInfo { group: Group(7), axis: Axis::World, ranks: vec![Rank(1), Rank(0)] };
        assert_eq!(
            described(&ranks),
            [world],
            "two ranks say to be the same one, and one says that another is missing"
        );
        assert_eq!(described(&[]), []);
    }
}
