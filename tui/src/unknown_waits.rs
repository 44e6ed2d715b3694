//! Why waiting in collectives is unknown.

use stepscope_analyzer::{Analysis, CollectiveFigures};
use stepscope_traces::SpanKind;

/// Why nothing is known of waiting in collectives, if nothing is.
pub(crate) fn why_unknown(analysis: &Analysis) -> Option<&'static str> {
    if !analysis.stragglers.is_empty() {
        return None;
    }
    let is_message = |figures: &CollectiveFigures| matches!(figures.operation, SpanKind::Send | SpanKind::Receive);
    Some(match &analysis.collectives[..] {
        _ if analysis.ranks.len() < 2 => "only one rank, so nothing to compare",
        [] => "no communication recorded",
        figures if figures.iter().all(is_message) => {
            "no collectives, only point-to-point messages; waiting for them is pipeline bubble"
        }
        // There was waiting, but not for stragglers.
        figures if figures.iter().any(|figures| !is_message(figures) && figures.waiting_ns.is_some()) => {
            "all collectives are between stages; waiting for them is pipeline bubble"
        }
        _ => "unknown: no collective was recorded by all of its ranks",
    })
}
