//! What many spans of a rank have in common: everything but their times.

use stepscope_traces::{NameId, SpanKind, Spans};

use crate::{figures::Class, rank::activity::ActivityPlace};

/// What spans are that differ in their times alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpanKey {
    pub(crate) place: ActivityPlace,
    pub(crate) kind: SpanKind,
    pub(crate) name: NameId,
    pub(crate) bytes: Option<u64>,
    pub(crate) flops: Option<u64>,
}

impl SpanKey {
    /// What a span is; none, where it is no activity.
    pub(super) fn of(spans: &Spans, row: usize) -> Option<SpanKey> {
        let kind = spans.kind.get(row);
        let class = Class::of(kind)?;
        let place = ActivityPlace::of(spans, row, class, None);
        let (bytes, flops) = (spans.bytes.get(row), spans.flops.get(row));
        Some(SpanKey { place, kind, name: spans.name.get(row), bytes, flops })
    }
}
