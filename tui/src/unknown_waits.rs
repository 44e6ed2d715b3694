//! Why nobody knows who waits for whom.

use stepscope_analyzer::{Analysis, CollectiveFigures};
use stepscope_traces::SpanKind;

/// Why nothing is known of waiting in collectives, if nothing is.
pub(crate) fn why_unknown(analysis: &Analysis) -> Option<&'static str> {
    if !analysis.stragglers.is_empty() {
        return None;
    }
    let is_message = |figures: &CollectiveFigures| matches!(figures.operation, SpanKind::Send | SpanKind::Receive);
    Some(match &analysis.collectives[..] {
        _ if analysis.ranks.len() < 2 => "one rank is here, so nobody knows for whom it waits",
        [] => "no communication is recorded",
        figures if figures.iter().all(is_message) => {
            "no collectives, only messages: a stage that waits for one is a bubble of the pipeline"
        }
        // Somebody waited, and is not told of as one who waits for others.
        figures if figures.iter().any(|figures| !is_message(figures) && figures.waiting_ns.is_some()) => {
            "all collectives are between stages: who waits there waits for the pipeline, which is its bubble"
        }
        _ => "not known: no collective was recorded by all its ranks",
    })
}
