//! Why a pickle cannot be read.

use std::io;

/// Why a pickle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PickleError {
    /// It wants something to be looked up or called.
    #[error("it asks to run {what}, and nothing of a file is ever run")]
    WantsToRun {
        /// What.
        what: String,
    },
    /// An instruction that plain data does not need.
    #[error("at byte {offset}: instruction 0x{code:02x}, which plain data does not need")]
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
    #[error("at byte {offset}: more values than a file of this kind can have")]
    TooManyValues {
        /// Where.
        offset: u64,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}
