//! What other tools recorded, as runs.

mod imported;
mod join;
pub(crate) mod kineto;
mod rank_name;
mod source;
mod torch_snapshot;
mod write;

pub(crate) use imported::ImportedRank;
pub use join::JoinError;
pub(crate) use join::take_notes;
pub use torch_snapshot::{
    FollowError, FollowedMemory, Mark, Observation, PickleError, SnapshotError, Taken, TrainingEvent,
};
