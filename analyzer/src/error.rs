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
    #[error("none of the selected steps was recorded{}", there_are(*recorded))]
    NoSuchSteps {
        /// The first and the last of those that are.
        recorded: Option<(Step, Step)>,
    },
    /// A recording whose times cannot be.
    #[error("rank {} has timestamps from {first} to {last} ns, a longer time than any run takes: its recording is damaged", rank.0)]
    Times {
        /// Of which rank.
        rank: Rank,
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// A rank that is still recorded has no summary yet.
    #[error("rank {} is still being recorded", rank.0)]
    StillRecorded {
        /// Which rank.
        rank: Rank,
    },
    /// A worker that panicked: a bug of ours.
    #[error("the analysis of a rank panicked (a bug in stepscope)")]
    Panicked,
}

fn there_are(steps: Option<(Step, Step)>) -> String {
    steps.map(|(first, last)| format!("; recorded steps are {first} to {last}")).unwrap_or_default()
}
