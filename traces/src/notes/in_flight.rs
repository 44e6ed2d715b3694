//! Communication that was not over when a recorder wrote down what it knew.

use serde::{Deserialize, Serialize};

use super::field::values_while_any;
use crate::{
    ids::{Group, MessageNumber, Nanos, Rank, Sequence},
    vocabulary::SpanKind,
};

/// How far a rank had come in each of its groups, and what it still waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The groups that the rank is in.
    pub groups: Vec<GroupProgress>,
    /// Operations that were not over, the first asked for first.
    pub waiting: Vec<AskedOperation>,
    /// How many more of those there were.
    #[serde(default)]
    pub more: u64,
    /// The last operation that was over, if there is any.
    pub last_completed: Option<AskedOperation>,
    /// Collectives that were over, the first asked for first, without their stacks.
    #[serde(default)]
    pub completed: Vec<AskedOperation>,
    /// Whether it was recorded when operations began on the GPU.
    #[serde(default)]
    pub are_starts_known: bool,
    /// Whether nobody knows when operations were over: then what waits is what was asked for last.
    #[serde(default)]
    pub are_ends_unknown: bool,
}

/// How far a rank had come in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupProgress {
    /// The group, by the number that all of its ranks have for it.
    pub group: Group,
    /// What the program calls it.
    pub name: String,
    /// The ranks in it, in the order of their places.
    pub ranks: Vec<Rank>,
    /// The number of the last collective that was asked for, if that is known.
    pub last_asked: Option<u64>,
}

/// A collective, a send or a receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedOperation {
    /// The group that it is in.
    pub group: Group,
    /// What it does, as PyTorch calls it.
    pub name: String,
    /// Its number in the group; sends and receives have their own.
    pub sequence: u64,
    /// The other side of a send or a receive.
    pub peer: Option<Rank>,
    /// Its place in the group, where its rank is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_place: Option<u16>,
    /// What it was given and what it gives, by tensor: sizes.
    pub input_sizes: Vec<Vec<u64>>,
    /// See `input_sizes`.
    pub output_sizes: Vec<Vec<u64>>,
    /// Types of the elements, as PyTorch calls them.
    pub types: Vec<String>,
    /// How far it was.
    pub state: OperationState,
    /// When it was asked for, on the rank's clock.
    pub asked_ns: Nanos,
    /// Who asked for it, the innermost call first.
    pub stack: Vec<String>,
}

impl AskedOperation {
    /// One of a kind of ours. Messages have the numbers that are meant for them, which say their ends.
    pub fn new(kind: SpanKind, group: Group, sequence: Sequence, asked_ns: Nanos) -> AskedOperation {
        let ends = MessageNumber::from(sequence);
        let (name, peer_place) = match kind {
            SpanKind::Send => ("send".into(), Some(ends.to)),
            SpanKind::Receive => ("recv".into(), Some(ends.from)),
            _ => (kind.word().replace('-', "_"), None),
        };
        AskedOperation {
            group,
            name,
            sequence: sequence.0,
            peer: None,
            peer_place,
            input_sizes: Vec::new(),
            output_sizes: Vec::new(),
            types: Vec::new(),
            state: OperationState::Scheduled,
            asked_ns,
            stack: Vec::new(),
        }
    }
}

/// How far an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// It was asked for. Whether it has begun is not always recorded: see [`InFlight::are_starts_known`].
    Scheduled,
    /// It has begun.
    Started,
    /// It is over.
    Completed,
}

values_while_any!(InFlight);
