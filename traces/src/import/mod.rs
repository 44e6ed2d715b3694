//! What other tools recorded, as runs.

mod imported;
mod join;
mod kineto;
mod rank_name;
mod rank_source;
mod source;
mod torch_snapshot;

pub(crate) use imported::ImportedRank;
pub(crate) use rank_source::RankSource;
pub(crate) use source::{ImportedRun, SourceRank, open};
pub use torch_snapshot::{FollowError, FollowedMemory, Mark, Observation, Taken, TrainingEvent};
