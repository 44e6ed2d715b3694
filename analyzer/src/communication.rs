//! Each collective, send and receive of a rank, as the questions across ranks need it.

use stepscope_traces::{Group, Sequence, SpanKind, Spans, Step};

use crate::{activity::Class, intervals::Intervals, selection::StepRange};

/// One rank's part in a collective, or a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommunicationSpan {
    pub(crate) operation: SpanKind,
    /// The group, and the collective's number in it; a message's number is one of those between its two ranks.
    pub(crate) group: Option<Group>,
    pub(crate) sequence: Option<Sequence>,
    pub(crate) step: Option<Step>,
    /// In the rank's clock.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The message's.
    pub(crate) bytes: Option<u64>,
    /// What of it no compute kernel covers.
    pub(crate) exposed_ns: i64,
}

impl CommunicationSpan {
    pub(crate) fn duration(&self) -> i64 {
        self.end - self.start
    }
}

/// Appends the communication among some spans; what is exposed is not known yet.
pub(crate) fn take(into: &mut Vec<CommunicationSpan>, spans: &Spans, steps: StepRange) {
    for row in 0..spans.len() {
        let (operation, step) = (spans.kind.get(row), spans.step.get(row));
        if Class::of(operation) != Some(Class::Communication) || !steps.has(step) {
            continue;
        }
        let start = spans.start_ns.get(row).0;
        into.push(CommunicationSpan {
            operation,
            group: spans.group.get(row),
            sequence: spans.sequence.get(row),
            step,
            start,
            end: start.saturating_add(spans.duration_ns.get(row).0.max(0)),
            bytes: spans.bytes.get(row),
            exposed_ns: 0,
        });
    }
}

/// Says what of each no compute covers.
pub(crate) fn expose(spans: &mut [CommunicationSpan], compute: &Intervals) {
    for span in spans {
        span.exposed_ns = span.duration() - compute.covered(span.start, span.end);
    }
}
