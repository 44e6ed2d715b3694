//! What can go wrong with a run.

use std::{io, path::PathBuf};

use crate::{
    format::SCHEMA_VERSION,
    ids::Rank,
    import::{JoinError, SnapshotError},
};

/// Something that could not be done with a run, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is nothing at the path.
    #[error("there is nothing at {path}")]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is something else than a run at the path.
    #[error("{path} is not a run directory: {why}")]
    NotARun {
        /// The path.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// There is a file at the path, and we know of no tool that writes such a one.
    #[error("{path} is neither a PyTorch trace nor a memory snapshot: it is {what}")]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Two traces, or two memory snapshots, are of one rank.
    #[error("{one} and {other} are both of rank {rank}; only one of them can be looked at")]
    SameRank {
        /// The rank.
        rank: Rank,
        /// One of them.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
    /// A memory snapshot does not say its rank, and several could be it.
    #[error("{path} does not say of which rank it is, and there are traces of several")]
    WhoseMemory {
        /// The snapshot.
        path: PathBuf,
    },
    /// A file cannot be read as a memory snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A trace and a memory snapshot of a rank do not belong together.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The run was written by a newer version.
    #[error(
        "{path} has schema version {found}, written by stepscope {written_by}; this stepscope reads versions up to {SCHEMA_VERSION}"
    )]
    NewerSchema {
        /// The path.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The version of Stepscope that wrote it.
        written_by: String,
    },
    /// Somebody records, or recorded, into the same place.
    #[error("{path} already holds a recording")]
    AlreadyRecorded {
        /// The path.
        path: PathBuf,
    },
    /// Something else is there already, which a recording would be among.
    #[error("{path} is not empty: `{entry}` is in it; a run needs a directory of its own")]
    NotEmpty {
        /// The path.
        path: PathBuf,
        /// One of the things that are there.
        entry: String,
    },
    /// The directory went away while it was written to.
    #[error("{path} was removed or replaced")]
    Vanished {
        /// The path.
        path: PathBuf,
    },
    /// A JSON file does not say what it should.
    #[error("cannot understand {path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl TraceError {
    /// For `map_err`: what was attempted, and where.
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> TraceError {
        let path = path.to_owned();
        move |source| TraceError::Io { action, path, source }
    }
}
