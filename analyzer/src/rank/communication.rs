//! Each collective, send and receive of a rank, as the questions across ranks need it.

use stepscope_traces::{Group, Phase, Sequence, SpanKind, Spans, Step};

use crate::{figures::Class, rank::intervals::Intervals, stored::fields};

/// One rank's part in a collective, or a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommunicationSpan {
    pub(crate) operation: SpanKind,
    /// The group, and the collective's number in it; a message's number is one of those between its two ranks.
    pub(crate) group: Option<Group>,
    pub(crate) sequence: Option<Sequence>,
    pub(crate) step: Option<Step>,
    pub(crate) phase: Option<Phase>,
    /// In the rank's clock.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The message's.
    pub(crate) bytes: Option<u64>,
    /// What of it no compute kernel covers.
    pub(crate) exposed_ns: i64,
    /// Time covered by compute kernels before it: tells what of spans that overlap is exposed.
    computed_ns: i64,
}

fields!(CommunicationSpan { operation, group, sequence, step, phase, start, end, bytes, exposed_ns, computed_ns });

impl CommunicationSpan {
    pub(crate) fn duration(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has one sender or receiver.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.operation, SpanKind::Send | SpanKind::Receive)
    }

    /// Time covered by compute kernels before its end.
    fn computed_at_end(&self) -> i64 {
        self.computed_ns.saturating_add(self.duration().saturating_sub(self.exposed_ns))
    }
}

/// Appends the communication among some spans; what is exposed is not known yet.
pub(crate) fn take(into: &mut Vec<CommunicationSpan>, spans: &Spans) {
    for row in 0..spans.len() {
        let (operation, step) = (spans.kind.get(row), spans.step.get(row));
        if Class::of(operation) != Some(Class::Communication) {
            continue;
        }
        let start = spans.start_ns.get(row).0;
        into.push(CommunicationSpan {
            operation,
            group: spans.group.get(row),
            sequence: spans.sequence.get(row),
            step,
            phase: spans.phase.get(row),
            start,
            end: start.saturating_add(spans.duration_ns.get(row).0.max(0)),
            bytes: spans.bytes.get(row),
            exposed_ns: 0,
            computed_ns: 0,
        });
    }
}

/// Says what of each no compute covers.
pub(crate) fn expose(spans: &mut [CommunicationSpan], compute: &Intervals) {
    let intervals: Vec<(i64, i64)> = compute.iter().collect();
    let mut sums = vec![0_i64];
    for (start, end) in &intervals {
        sums.push(sums[sums.len() - 1].saturating_add(end.saturating_sub(*start)));
    }
    let before = |time: i64| {
        let over = intervals.partition_point(|(_, end)| *end <= time);
        let going_on = intervals.get(over).map_or(0, |(start, _)| time.saturating_sub(*start).max(0));
        sums[over].saturating_add(going_on)
    };
    for span in spans {
        span.computed_ns = before(span.start);
        span.exposed_ns = span.duration() - (before(span.end) - span.computed_ns);
    }
}

/// The time that some spans of one rank cover together, and what of it no compute covers.
pub(crate) fn union(mut spans: Vec<&CommunicationSpan>) -> (i64, i64) {
    // Those of a stream are in order, and the stable sort finds such runs.
    spans.sort_by_key(|span| span.start);
    let (mut busy, mut exposed) = (0_i64, 0_i64);
    // How far time is counted, and the compute until then.
    let mut counted = (i64::MIN, 0);
    for span in spans {
        let (from, computed) = counted.max((span.start, span.computed_ns));
        if span.end <= from {
            continue;
        }
        let length = span.end.saturating_sub(from);
        busy = busy.saturating_add(length);
        exposed = exposed.saturating_add(length.saturating_sub(span.computed_at_end().saturating_sub(computed)));
        counted = (span.end, span.computed_at_end());
    }
    (busy, exposed)
}

#[cfg(test)]
impl CommunicationSpan {
    /// Some all-reduce.
    pub(crate) fn between(start: i64, end: i64) -> CommunicationSpan {
        CommunicationSpan {
            operation: SpanKind::AllReduce,
            group: None,
            sequence: None,
            step: None,
            phase: None,
            start,
            end,
            bytes: None,
            exposed_ns: 0,
            computed_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((-20..40_i64, 0..8_i64).prop_map(|(start, length)| (start, start + length)), 0..12)
    }

    proptest! {
        #[test]
        fn what_is_exposed_is_what_no_compute_covers(spans in any_intervals(), compute in any_intervals()) {
            let mut communication: Vec<_> =
                spans.iter().map(|(start, end)| CommunicationSpan::between(*start, *end)).collect();
            let compute = Intervals::union_of(compute);
            expose(&mut communication, &compute);
            for span in &communication {
                prop_assert_eq!(span.exposed_ns, span.duration() - compute.covered(span.start, span.end));
            }
            let all = Intervals::union_of(spans);
            let expected = (all.length(), all.without(&compute).length());
            prop_assert_eq!(union(communication.iter().collect()), expected);
        }
    }
}
