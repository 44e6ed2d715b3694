//! What can go wrong with a memory snapshot.

use std::{io, path::PathBuf};

pub use super::pickle::PickleError;

/// Why a file cannot be read as a PyTorch memory snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a PyTorch memory snapshot: it is {what}")]
    SomethingElse {
        /// The file.
        path: PathBuf,
        /// What.
        what: String,
    },
    /// It is a pickle that cannot be read.
    #[error("cannot read {path} as a PyTorch memory snapshot: {source}")]
    Pickle {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: PickleError,
    },
    /// It was cut off too early to be of use.
    #[error("{path} is a part of a PyTorch memory snapshot that ends before its history of events begins")]
    CutShort {
        /// The file.
        path: PathBuf,
    },
}
