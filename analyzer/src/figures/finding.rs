//! What stands out.

use serde::Serialize;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which kind, for programs.
    pub kind: &'static str,
    /// How much of the time, or of memory, it concerns: findings are ranked by it.
    pub share: f64,
    /// What it is, in a sentence.
    pub what: String,
    /// The figures it rests on.
    pub evidence: String,
    /// What to try.
    pub advice: String,
}
