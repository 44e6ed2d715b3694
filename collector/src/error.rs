//! Why a recording is not whole.

use stepscope_traces::TraceError;

/// Why a recording is not whole.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The run directory refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The recorder itself failed.
    #[error("the recorder failed: {0}")]
    Panicked(String),
    /// It already stopped; the reason went to the first caller and to stderr.
    #[error("the recording stopped early")]
    EndedEarly,
}
