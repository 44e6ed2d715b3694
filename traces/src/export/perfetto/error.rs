//! What can go wrong while a run is exported.

use std::io;

use crate::error::TraceError;

/// Why a run was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace cannot be written.
    #[error("cannot write the trace: {0}")]
    Write(io::Error),
    /// There is more of it than there may be.
    #[error("the trace exceeds its size limit")]
    TooLarge,
}
