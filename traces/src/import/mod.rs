//! What other tools recorded, as runs.

mod device_work;
mod flight_recorder;
mod imported;
mod join;
mod kineto;
mod nsys;
mod pickle;
mod profile;
mod rank_name;
mod rank_source;
mod recognize;
mod rocprof;
mod source;
mod sqlite;
mod subfolders;
mod tool_run;
mod torch_snapshot;
mod unpacked;
mod xplane;

pub use flight_recorder::in_flight;
pub(crate) use imported::ImportedRank;
pub(crate) use rank_source::RankSource;
pub(crate) use source::{ImportedRun, SourceRank, open};
pub(crate) use subfolders::folders_with_traces;
pub use torch_snapshot::{FollowError, FollowedMemory, Mark, Observation, Taken, TrainingEvent};
