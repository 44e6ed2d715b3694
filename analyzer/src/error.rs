//! Why a run cannot be analyzed.

use polars::error::PolarsError;
use stepscope_traces::TraceError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The run cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What was selected is not there.
    #[error("{0}")]
    Selection(String),
    /// A table that cannot be made: a bug of ours.
    #[error("cannot put the figures together: {0}")]
    Table(#[from] PolarsError),
    /// A worker that panicked: a bug of ours.
    #[error("the analysis of a rank panicked")]
    Panicked,
}
