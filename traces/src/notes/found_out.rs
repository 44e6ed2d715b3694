//! What was found out inside of a program: its groups of ranks, and what could not be found out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::field::values;
use crate::{
    ids::{Nanos, Rank},
    vocabulary::MemoryCategory,
};

/// A group of ranks that a program has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedGroup {
    /// What the program calls it.
    pub name: String,
    /// The ranks in it, in the order of their places.
    pub ranks: Vec<Rank>,
}

/// The groups of ranks that a program has made, as far as this rank is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamedGroups(pub Vec<NamedGroup>);

/// Sources of knowledge about a program that failed, each with its reason. The others went on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailedSources(pub BTreeMap<String, String>);

/// Where memory ran out, the last time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// How often it did.
    pub times: u64,
    /// When, on the rank's clock.
    pub time_ns: Nanos,
    /// What was asked for.
    pub requested_bytes: u64,
    /// What the device had left, if that was recorded.
    pub free_bytes: Option<u64>,
    /// Who asked for it, the innermost call first.
    pub stack: Vec<String>,
    /// What was held then, where whoever allocates says so itself. Else it is what the memory table has at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldMemory>,
    /// Whether there would have been room with PyTorch's expandable segments, where that can be told.
    pub expandable_segments_would_do: Option<bool>,
}

/// What an allocator holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldMemory {
    /// What was allocated, by what it is for.
    pub allocated_bytes: BTreeMap<MemoryCategory, u64>,
    /// What was taken from the device, allocated or not.
    pub reserved_bytes: u64,
}

values!(NamedGroups, FailedSources, OutOfMemory);
