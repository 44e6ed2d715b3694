//! What stands out in a run: plain sentences with their evidence, and what to try. Each kind of finding is a small type.

use serde::Serialize;

use crate::analysis::Analysis;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which kind, for programs.
    pub kind: &'static str,
    /// How much of the step it concerns, or of memory: findings are ranked by it.
    pub share: f64,
    /// What it is, in a sentence.
    pub what: String,
    /// The figures it rests on.
    pub evidence: String,
    /// What to try.
    pub advice: String,
}

/// What stands out in a run, the most important first.
pub(crate) fn findings(_analysis: &Analysis) -> Vec<Finding> {
    Vec::new()
}
