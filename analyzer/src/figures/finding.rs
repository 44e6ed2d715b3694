//! What stands out.

use serde::Serialize;
use stepscope_traces::{Rank, Step};

use super::what_if::SpanPlace;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which kind, for programs.
    pub kind: &'static str,
    /// How much of the time, or of memory, it concerns.
    pub share: f64,
    /// What it is, in a sentence.
    pub summary: String,
    /// What it rests on.
    pub evidence: Evidence,
    /// The time that it takes, of a step that counts; none, where it is not about time.
    pub lost_ns: Option<i64>,
    /// How long a step would be without it, by replay; none, where that cannot be told.
    pub step_without_ns: Option<i64>,
    /// What to try.
    pub advice: String,
}

/// What a finding rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// The figures, in a sentence.
    pub text: String,
    /// The ranks that are at fault; none, where all are alike.
    pub ranks: Vec<Rank>,
    /// The steps to look at; none, where all are alike.
    pub steps: Vec<Step>,
    /// Where it costs most in one of them, the longest first.
    pub spans: Vec<SpanPlace>,
}
