//! What can go wrong with a memory snapshot.

use std::{io, path::PathBuf};

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
    #[error("{path} is a PyTorch memory snapshot that is truncated before its event history")]
    CutShort {
        /// The file.
        path: PathBuf,
    },
}

/// Why a pickle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PickleError {
    /// It wants something to be looked up or called.
    #[error("it asks to run {what}; stepscope never runs code from a file")]
    WantsToRun {
        /// What.
        what: String,
    },
    /// An instruction that plain data does not need.
    #[error("at byte {offset}: instruction 0x{code:02x}, which plain data never uses")]
    Instruction {
        /// Where.
        offset: u64,
        /// Which.
        code: u8,
    },
    /// Instructions that do not fit together.
    #[error("at byte {offset}: {why}")]
    Malformed {
        /// Where.
        offset: u64,
        /// Why not.
        why: &'static str,
    },
    /// More parts than any real file of its length has.
    #[error("at byte {offset}: too many values")]
    TooManyValues {
        /// Where.
        offset: u64,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}
