//! What was written, counted, so that it can be held against what was recorded.

use crate::{tables::Span, vocabulary::SpanKind};

/// What a trace has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes, before they are packed.
    pub bytes: u64,
    /// Spans, by kind in the order of [`SpanKind::ALL`].
    pub spans: [u64; SpanKind::ALL.len()],
    /// The time of all kernels.
    pub kernel_ns: u64,
    /// Annotations as the device sees them.
    pub frames: u64,
    /// Modules and operators around kernels.
    pub parents: u64,
    /// Stretches of time on tracks of their own.
    pub stretches: u64,
    /// Values of counters.
    pub values: u64,
    /// Moments that stand out.
    pub marks: u64,
    /// Ends of flows.
    pub flow_ends: u64,
    /// Spans that begin later than they did, since too many others overlap them.
    pub clipped: u64,
    /// The number of the next flow.
    pub(super) next_flow: u64,
}

impl Written {
    pub(super) fn count(&mut self, span: &Span, duration: u64, flows: u64) {
        self.spans[span.kind as usize] += 1;
        self.flow_ends += flows;
        if span.kind == SpanKind::Kernel {
            self.kernel_ns += duration;
        }
    }

    /// Spans of all kinds.
    pub fn all_spans(&self) -> u64 {
        self.spans.iter().sum()
    }
}
