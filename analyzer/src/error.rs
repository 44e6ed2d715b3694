//! Why a run cannot be analyzed.

use stepscope_traces::{Rank, Step, TraceError};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The run cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What was selected is not there.
    #[error("{0}")]
    Selection(String),
    /// None of the steps that were selected is there.
    #[error("none of these steps was recorded{}", there_are(*recorded))]
    NoSuchSteps {
        /// The first and the last of those that are.
        recorded: Option<(Step, Step)>,
    },
    /// A recording whose times cannot be.
    #[error("rank {} has times from {first} to {last} ns, further apart than any run lasts: its recording is damaged", rank.0)]
    Times {
        /// Of which rank.
        rank: Rank,
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// A worker that panicked: a bug of ours.
    #[error("the analysis of a rank panicked")]
    Panicked,
}

fn there_are(steps: Option<(Step, Step)>) -> String {
    steps.map(|(first, last)| format!("; there are steps {first} to {last}")).unwrap_or_default()
}
