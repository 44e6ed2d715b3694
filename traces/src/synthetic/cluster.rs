//! Where the ranks of a synthetic run are.

use super::Cluster;
use crate::{
    ids::Rank,
    rank_info::RankInfo,
    topology::{GpuSlot, Topology},
};

impl Cluster {
    /// Says where a rank runs.
    pub(super) fn place(self, info: &mut RankInfo) {
        let Rank(rank) = info.rank;
        let (node, gpu) = (rank / self.ranks_per_host, rank % self.ranks_per_host);
        info.host = format!("node{node}");
        info.topology = Topology {
            node: Some(node),
            local_rank: Some(gpu),
            gpu: GpuSlot { index: Some(gpu), ..GpuSlot::default() },
            switches: vec!["spine".into(), format!("leaf{}", self.switch_of(info.rank))],
        };
    }

    /// Whether a rank is below the slow switch; none, where none is slow.
    pub(super) fn is_slow(self, rank: Rank) -> Option<bool> {
        Some(self.switch_of(rank) == self.slow_switch?)
    }

    fn switch_of(self, rank: Rank) -> u32 {
        rank.0 / self.ranks_per_host / self.hosts_per_switch
    }
}
