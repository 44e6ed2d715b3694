//! Communication that never ended.

use serde::Serialize;
use stepscope_traces::{OperationState, Rank};

use super::call_sites::caller;
use crate::stored::{fields, one_of};

/// What ranks waited in when a recorder wrote down what it knew, and why that did not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hang {
    /// What everybody waits for in the end.
    pub cause: HangCause,
    /// Whose fault it is, as far as that is known: who did not come, who differs, who waits in a circle.
    pub ranks: Vec<Rank>,
    /// The operation that does not end because of that: of several, the one that was asked for first.
    pub operation: PendingOperation,
    /// What each rank called as that operation, where they do not do the same in a collective.
    pub differing: Vec<RankOperation>,
    /// Who waits, each in its first operation that is not over.
    pub waiting: Vec<WaitingRank>,
    /// Ranks that wait in nothing, each with the last thing that it did.
    pub elsewhere: Vec<RankElsewhere>,
    /// Ranks of the waiting ones' groups of which there is no dump.
    pub without_dump: Vec<Rank>,
}

fields!(Hang { cause, ranks, operation, differing, waiting, elsewhere, without_dump });

/// Why communication does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangCause {
    /// Some ranks did not come to it.
    Absent,
    /// It waits for ranks of which there is no dump.
    NoDump,
    /// Its ranks do not do the same.
    Mismatch,
    /// Ranks wait for each other in a circle.
    Deadlock,
    /// All of its ranks came.
    AllCame,
}

one_of!(HangCause: [HangCause::Absent, HangCause::NoDump, HangCause::Mismatch, HangCause::Deadlock, HangCause::AllCame]);

/// What a rank asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingOperation {
    /// What it does, as PyTorch calls it.
    pub operation: String,
    /// Its group, as the program calls it.
    pub group: String,
    /// The ranks of its group.
    pub group_ranks: Vec<Rank>,
    /// Its number in the group; sends and receives have their own.
    pub sequence: u64,
    /// The other side of a send or a receive.
    pub peer: Option<Rank>,
    /// What it was given, by tensor.
    pub input_sizes: Vec<Vec<u64>>,
    /// What it gives, by tensor.
    pub output_sizes: Vec<Vec<u64>>,
    /// Types of the elements, as PyTorch calls them.
    pub types: Vec<String>,
    /// How far it was; null where nobody recorded whether it has begun.
    pub state: Option<OperationState>,
    /// When it was asked for, in nanoseconds since 1970.
    pub asked_ns: i64,
    /// Who asked for it, the innermost call first.
    pub stack: Vec<String>,
}

fields!(PendingOperation {
    operation,
    group,
    group_ranks,
    sequence,
    peer,
    input_sizes,
    output_sizes,
    types,
    state,
    asked_ns,
    stack,
});

impl PendingOperation {
    /// The innermost call of the program itself, if stacks were recorded.
    pub fn caller(&self) -> Option<&str> {
        caller(&self.stack)
    }
}

/// What a rank called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankOperation {
    /// The rank.
    pub rank: Rank,
    /// What.
    #[serde(flatten)]
    pub operation: PendingOperation,
}

fields!(RankOperation { rank, operation });

/// A rank that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingRank {
    /// The rank.
    pub rank: Rank,
    /// In what.
    #[serde(flatten)]
    pub operation: PendingOperation,
    /// For whom: ranks that did not come to it, or that wait in something else before it.
    pub waits_for: Vec<Rank>,
    /// How many operations it asked for that are not over, this one too.
    pub pending: u64,
}

fields!(WaitingRank { rank, operation, waits_for, pending });

/// A rank that waits in nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankElsewhere {
    /// The rank.
    pub rank: Rank,
    /// The last operation that was over, if there is any.
    pub last: Option<PendingOperation>,
    /// Where its main thread is in Python, the innermost call first, if it was asked.
    pub stack: Vec<String>,
}

fields!(RankElsewhere { rank, last, stack });

impl RankElsewhere {
    /// The innermost call of the program itself, if the rank was asked.
    pub fn place(&self) -> Option<&str> {
        caller(&self.stack)
    }
}
