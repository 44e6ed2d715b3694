//! Jobs that continue one another.

use std::path::PathBuf;

use serde::Serialize;
use stepscope_traces::State;

/// One of the jobs that make up a run: each goes on where the one before it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentSummary {
    /// Its number, from 1.
    pub number: u32,
    /// Where it is, as a run of its own.
    pub path: PathBuf,
    /// Whether figures are of this one.
    pub is_analyzed: bool,
    /// When it began, in RFC 3339.
    pub started: String,
    /// When it was last heard of, in nanoseconds since 1970, UTC; none, where no rank says so.
    pub ended_wall_ns: Option<i64>,
    /// What became of it.
    pub state: State,
    /// Why it ended, where somebody says so.
    pub ended_by: Option<String>,
}
