//! What can go wrong with a run, and with what another tool recorded of one.

mod import;
mod snapshot;
mod summary;

use std::{io, path::PathBuf};

use crate::format::SCHEMA_VERSION;

pub use import::{ImportError, JoinError};
pub use snapshot::{PickleError, SnapshotError};
pub use summary::SummaryError;

/// Something that could not be done with a run, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is nothing at the path.
    #[error("{path} does not exist")]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is something else than a run at the path.
    #[error("{path} is not a run directory: {why}")]
    NotARun {
        /// The path.
        path: PathBuf,
        /// What is missing, and what is there instead.
        why: String,
    },
    /// What another tool recorded cannot be read as a run.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The run was written by a newer version.
    #[error(
        "{path} has schema version {found} (written by stepscope {written_by}); this stepscope reads versions up to {SCHEMA_VERSION}"
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
    #[error("{path} already contains a recording")]
    AlreadyRecorded {
        /// The path.
        path: PathBuf,
    },
    /// Something else is there already, which a recording would be among.
    #[error("{path} is not empty: it contains `{entry}`; a run needs its own directory")]
    NotEmpty {
        /// The path.
        path: PathBuf,
        /// One of the things that are there.
        entry: String,
    },
    /// Others can put into the directory what they like, and take away what is there.
    #[error("cannot record into {path}: it belongs to another user, and everyone can write to it")]
    OpenToAll {
        /// The path.
        path: PathBuf,
    },
    /// The directory went away while it was written to.
    #[error("{path} was removed or replaced")]
    Vanished {
        /// The path.
        path: PathBuf,
    },
    /// What was recorded is needed, and only its summary is there.
    #[error("{path} has only a summary: what was recorded is not here")]
    OnlySummary {
        /// The directory of the rank.
        path: PathBuf,
    },
    /// A summary was to be made of what is not there.
    #[error("nothing that was recorded is in {path}")]
    NoRecording {
        /// The directory of the rank.
        path: PathBuf,
    },
    /// Only a summary is there, and it cannot be used.
    #[error("{path} has only a summary, which cannot be used: {why}")]
    UselessSummary {
        /// The directory of the rank.
        path: PathBuf,
        /// Why not.
        why: SummaryError,
    },
    /// A JSON file does not say what it should.
    #[error("cannot parse {path}: {source}")]
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

impl From<SnapshotError> for TraceError {
    fn from(error: SnapshotError) -> TraceError {
        ImportError::Snapshot(error).into()
    }
}

impl From<JoinError> for TraceError {
    fn from(error: JoinError) -> TraceError {
        ImportError::Join(error).into()
    }
}
