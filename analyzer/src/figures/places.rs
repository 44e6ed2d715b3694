//! Where ranks run, and how time goes there.

use serde::Serialize;
use stepscope_traces::Rank;

use super::partition::Partition;
use crate::stored::{fields, one_of};

/// What ranks may have in common by where they run, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// The index of their GPU in its host, on all hosts; where that is not known of all ranks, the local rank.
    GpuIndex,
    /// Their host.
    Host,
    /// A switch above their hosts.
    Switch,
}

one_of!(PlaceKind: [PlaceKind::GpuIndex, PlaceKind::Host, PlaceKind::Switch]);

/// Ranks that run at one place. Of one kind, and one level of switches, all ranks are at one place each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceFigures {
    /// What they have in common.
    pub kind: PlaceKind,
    /// How many switches are above it, of a switch.
    pub level: Option<u32>,
    /// Which place it is; none, where its ranks do not say.
    pub name: Option<String>,
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// How many steps of them count, added up.
    pub windows: u64,
    /// The time of all of those together.
    #[serde(flatten)]
    pub partition: Partition,
    /// How long they waited in collectives for others; none, where they shared no collective.
    pub wait_ns: Option<i64>,
    /// How long others waited in collectives of which one of them was the last.
    pub caused_wait_ns: Option<i64>,
}

fields!(PlaceFigures { kind, level, name, ranks, windows, partition, wait_ns, caused_wait_ns });

impl PlaceFigures {
    /// The mean of a part of the time, of one step of one rank.
    pub fn mean(&self, part: impl Fn(&Partition) -> i64) -> i64 {
        part(&self.partition) / self.windows.max(1) as i64
    }
}
