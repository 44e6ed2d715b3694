//! What ties calls that launch work to what they launched.

use std::collections::HashMap;

use crate::{ids::Correlation, tables::Span, vocabulary::SpanKind};

/// Which launches and activities wait, by what ties them together: a flow has two ends, or is none.
#[derive(Default)]
pub(super) struct Launched {
    waiting: HashMap<Correlation, Pair>,
}

/// A launch, and what it launched.
#[derive(Default)]
struct Pair {
    launches: u32,
    activities: u32,
    flow: Option<u64>,
}

impl Launched {
    /// Whether a span is the launch of something, or was launched.
    fn is_launch(span: &Span) -> Option<(Correlation, bool)> {
        let is_launch = span.kind == SpanKind::Launch;
        span.correlation.filter(|_| is_launch || !span.kind.is_annotation()).map(|correlation| (correlation, is_launch))
    }

    /// Something will be written.
    pub(super) fn expect(&mut self, span: &Span) {
        if let Some((correlation, is_launch)) = Launched::is_launch(span) {
            let pair = self.waiting.entry(correlation).or_default();
            *(if is_launch { &mut pair.launches } else { &mut pair.activities }) += 1;
        }
    }

    /// The flow of something that is written now: from a launch to what waits for it.
    pub(super) fn flow(&mut self, span: &Span, next: &mut u64) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        let (correlation, is_launch) = Launched::is_launch(span)?;
        let pair = self.waiting.get_mut(&correlation)?;
        if is_launch {
            pair.launches = pair.launches.saturating_sub(1);
            if pair.activities > 0 && pair.flow.is_none() {
                pair.flow = Some(*next);
                *next += 1;
            }
        } else {
            pair.activities = pair.activities.saturating_sub(1);
        }
        let flow = pair.flow;
        if pair.launches == 0 && pair.activities == 0 {
            self.waiting.remove(&correlation);
        }
        flow
    }
}
