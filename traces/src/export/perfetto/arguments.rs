//! The arguments of a span: its name, and everything else that is known about it.

use super::{
    Note,
    detail::{Detail, Level},
    event::Event,
    labels::{Argument, Label, Tags},
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

/// Whether a kind of span has arguments; its category says the place of one that has none.
fn has_arguments(kind: SpanKind, detail: Detail) -> bool {
    let are_many = matches!(level(kind), Some(Level::Kernels | Level::Layers | Level::Host));
    !are_many || detail.has(Level::Arguments)
}

/// The category of a span.
pub(super) fn tags(span: &Span, detail: Detail) -> Tags {
    if has_arguments(span.kind, detail) {
        return Tags::of(span.kind);
    }
    // A layer's name says which it is.
    let layer = span.layer.filter(|_| span.kind != SpanKind::Layer);
    Tags { kind: span.kind, phase: span.phase, layer }
}

/// What is known of a span besides its name and its time.
pub(super) fn arguments(event: &mut Event, span: &Span, duration: u64, note: Option<Note>, detail: Detail) {
    if !has_arguments(span.kind, detail) {
        return;
    }
    let per_second = 1e9 / duration as f64;
    if span.kind.is_annotation() || span.kind.is_communication() {
        span.step.iter().for_each(|step| event.number(Argument::Step, step.0));
    }
    if span.kind.is_annotation() {
        span.micro_batch.iter().for_each(|micro_batch| event.number(Argument::MicroBatch, micro_batch.0));
    }
    span.phase.iter().for_each(|phase| event.phase(*phase));
    span.layer.iter().for_each(|layer| event.number(Argument::Layer, layer.0));
    // Those of an operator are of one of its kernels; the others have none.
    if let Some(flops) = span.flops.filter(|flops| *flops > 0) {
        event.count(Argument::Flops, flops);
        if duration > 0 {
            event.rate(Argument::TeraFlops, flops as f64 * per_second / 1e12);
        }
    }
    if let Some(bytes) = span.bytes {
        event.count(Argument::Bytes, bytes);
        if duration > 0 && span.kind.is_copy() {
            event.rate(Argument::Bandwidth, bytes as f64 * per_second / 1e9);
        }
    }
    span.origin.iter().for_each(|origin| event.launched_by(*origin));
    if span.kind == SpanKind::Launch {
        span.correlation.iter().for_each(|correlation| event.count(Argument::Correlation, correlation.0));
    }
    if span.kind.is_communication() {
        collective(event, span, duration, note);
    }
}

/// What is known of communication.
fn collective(event: &mut Event, span: &Span, duration: u64, note: Option<Note>) {
    event.operation(span.kind);
    span.group.iter().for_each(|group| event.count(Argument::Group, group.0.into()));
    span.sequence.iter().for_each(|sequence| event.count(Argument::Sequence, sequence.0));
    let Some(Note { own_ns: Some(own), bus_factor, .. }) = note else { return };
    event.count(Argument::Own, own);
    event.count(Argument::Waiting, duration.saturating_sub(own));
    if let Some(bytes) = span.bytes.filter(|_| own > 0) {
        let bandwidth = bytes as f64 / own as f64;
        event.rate(Argument::AlgorithmBandwidth, bandwidth);
        bus_factor.iter().for_each(|factor| event.rate(Argument::BusBandwidth, bandwidth * f64::from(*factor)));
    }
}
