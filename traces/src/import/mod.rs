//! What other tools recorded, as runs.

mod imported;
mod join;
pub mod torch_snapshot;

pub use imported::{Imported, ImportedRank};
pub use join::JoinError;
