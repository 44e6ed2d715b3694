//! What is said of a span: its name, and everything else that is known of it.

use super::{
    Note,
    detail::Level,
    labels::{Argument, Label},
    schema::TrackEvent,
};
use crate::{tables::Span, vocabulary::SpanKind};

/// The level that a span belongs to; steps are in none, and always written.
pub(super) fn level(kind: SpanKind) -> Option<Level> {
    Some(match kind {
        SpanKind::Kernel | SpanKind::Copy | SpanKind::Set => Level::Kernels,
        SpanKind::Range | SpanKind::Launch => Level::Host,
        SpanKind::Layer => Level::Layers,
        SpanKind::MicroBatch | SpanKind::Phase => Level::Phases,
        SpanKind::Step => return None,
        _ => Level::Communication,
    })
}

/// What a span is called.
pub(super) fn label(span: &Span) -> Label {
    let number = match span.kind {
        SpanKind::Step => span.step.map(|step| step.0),
        SpanKind::MicroBatch => span.micro_batch.map(|micro_batch| micro_batch.0),
        SpanKind::Layer => span.layer.map(|layer| layer.0),
        SpanKind::Phase => return span.phase.map_or(Label::Recorded(span.name), Label::Of),
        // What a library calls the kernel that does it says less.
        kind if kind.is_communication() && kind != SpanKind::Communication => return Label::Kind(kind),
        _ => None,
    };
    number.map_or(Label::Recorded(span.name), |number| Label::Numbered(span.kind, number))
}

/// What is known of a span besides its name and its time.
pub(super) fn arguments(event: &mut TrackEvent, span: &Span, duration: u64, note: Option<Note>) {
    let arguments = &mut event.debug_annotations;
    let seconds = duration as f64 / 1e9;
    let rate = |amount: u64| (duration > 0).then(|| amount as f64 / seconds);
    if span.kind.is_annotation() {
        arguments.extend(span.step.map(|step| Argument::Step.numbered(step.0)));
        arguments.extend(span.micro_batch.map(|micro_batch| Argument::MicroBatch.numbered(micro_batch.0)));
    }
    arguments.extend(span.phase.map(Argument::phase));
    arguments.extend(span.layer.map(|layer| Argument::Layer.numbered(layer.0)));
    arguments.extend(span.flops.map(|flops| Argument::Flops.counted(flops)));
    arguments.extend(span.flops.and_then(rate).map(|rate| Argument::TeraFlops.rate(rate / 1e12)));
    arguments.extend(span.bytes.map(|bytes| Argument::Bytes.counted(bytes)));
    if span.kind.is_copy() {
        arguments.extend(span.bytes.and_then(rate).map(|rate| Argument::Bandwidth.rate(rate / 1e9)));
    }
    if span.kind == SpanKind::Launch {
        arguments.extend(span.correlation.map(|correlation| Argument::Correlation.counted(correlation.0)));
    }
    if !span.kind.is_communication() {
        return;
    }
    arguments.push(Argument::operation(span.kind));
    arguments.extend(span.step.map(|step| Argument::Step.numbered(step.0)));
    arguments.extend(span.group.map(|group| Argument::Group.counted(group.0.into())));
    arguments.extend(span.sequence.map(|sequence| Argument::Sequence.counted(sequence.0)));
    let Some(Note { own_ns: Some(own), bus_factor, .. }) = note else { return };
    arguments.push(Argument::Own.counted(own));
    arguments.push(Argument::Waiting.counted(duration.saturating_sub(own)));
    if let Some(bytes) = span.bytes.filter(|_| own > 0) {
        let bandwidth = bytes as f64 / own as f64;
        arguments.push(Argument::AlgorithmBandwidth.rate(bandwidth));
        arguments.extend(bus_factor.map(|factor| Argument::BusBandwidth.rate(bandwidth * f64::from(factor))));
    }
}
