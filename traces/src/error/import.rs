//! What can go wrong with what another tool recorded.

use std::path::PathBuf;

use super::snapshot::SnapshotError;
use crate::ids::Rank;

/// Why what another tool recorded cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is a file at the path, and we know of no tool that writes such a one.
    #[error("{path} is nothing that stepscope reads: it is {what}")]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// A report of Nsight Systems, in a format that only its own tools read.
    #[error("{path} is an Nsight Systems report, which must be exported to SQLite first")]
    NsysReport {
        /// The path.
        path: PathBuf,
    },
    /// Two traces, or two memory snapshots, are of one rank.
    #[error("{one} and {other} are both from rank {rank}; only one can be used")]
    SameRank {
        /// The rank.
        rank: Rank,
        /// One of them.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
    /// Two traces are of one process, which was profiled several times.
    #[error("{one} and {other} are both from {process}, at different times; only one can be used")]
    SameProcess {
        /// What the process is called.
        process: String,
        /// One of them.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
    /// Two traces are copies of one.
    #[error("{one} and {other} are the same recording; only one can be used")]
    SameRecording {
        /// One of them.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
    /// Two traces are of different jobs.
    #[error("{one} and {other} are not from one job: {why}")]
    OtherJob {
        /// One of them.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
        /// How they differ.
        why: String,
    },
    /// A memory snapshot does not say its rank, and several could be it.
    #[error("{path} does not say which rank it is from, and there are traces of several ranks")]
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
}

/// Why two sources are not put together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// One of them does not say what time of day its times are.
    #[error("the memory snapshot and the trace of rank {rank} cannot be aligned: one has no wall-clock time")]
    NoTimeOfDay {
        /// Which rank.
        rank: Rank,
    },
    /// They were recorded at different times.
    #[error("the memory snapshot and the trace of rank {rank} do not overlap in time")]
    Apart {
        /// Which rank.
        rank: Rank,
    },
}
