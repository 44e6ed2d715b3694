//! Annotations as the device sees them: which step, micro-batch, phase and layer its kernels belong to, one after another.
//!
//! A program runs ahead of its device, so what it annotated and what its kernels do lie at different times. These frames
//! are told from the kernels themselves: each lasts from the first to the last kernel of those that follow each other on
//! the stream that computes most.

use super::{
    arguments::{arguments, label, tags},
    detail::{Detail, Level},
    event::Event,
    slices::Slices,
    tracks::TrackPlace,
    writing::Writing,
};
use crate::{
    ids::{Layer, MicroBatch, Nanos, Step, Stream},
    names::{FIRST_NAME, Names},
    tables::Span,
    vocabulary::{Phase, SpanKind},
};

/// Where these are among the tracks of a rank.
const FRAMES: i32 = 8;

/// The annotations, from the outermost, what a track of them is called, and the level it belongs to.
pub(super) const ANNOTATIONS: [(SpanKind, &str, Option<Level>); 4] = [
    (SpanKind::Step, "steps", None),
    (SpanKind::MicroBatch, "micro-batches", Some(Level::Phases)),
    (SpanKind::Phase, "phases", Some(Level::Phases)),
    (SpanKind::Layer, "layers", Some(Level::Layers)),
];

/// The frames of a rank.
pub(super) struct Frames {
    stream: Option<Stream>,
    detail: Detail,
    /// Where the last kernel belongs.
    place: Option<FramePlace>,
    /// A track for each annotation, and what is going on there.
    tracks: Vec<(SpanKind, Slices, Option<OpenFrame>)>,
}

/// Where in the training a kernel belongs.
type FramePlace = (Option<Step>, Option<MicroBatch>, Option<Phase>, Option<Layer>);

/// Kernels that belong together.
#[derive(Clone, Copy)]
struct OpenFrame {
    /// What they have in common, as an annotation would say it.
    what: Span,
    start: u64,
    end: u64,
}

impl Frames {
    /// The frames of kernels on a stream.
    pub(super) fn new(parent: u64, stream: Option<Stream>, detail: Detail) -> Frames {
        let track = |(depth, (kind, name, level)): (i32, (SpanKind, &str, Option<Level>))| {
            let slices = Slices::new(TrackPlace { parent, order: FRAMES + depth, name: name.into() }, true);
            level.is_none_or(|level| detail.has(level)).then_some((kind, slices, None))
        };
        Frames { stream, detail, place: None, tracks: (0..).zip(ANNOTATIONS).filter_map(track).collect() }
    }

    /// Whether a span is looked at.
    pub(super) fn are_told_by(&self, span: &Span) -> bool {
        span.kind == SpanKind::Kernel && span.stream == self.stream && span.step.is_some()
    }

    /// Takes a kernel that begins no earlier than the ones before it.
    pub(super) fn take(&mut self, span: &Span, (start, end): (u64, u64), names: &Names, into: &mut Writing<'_>) {
        let place = (span.step, span.micro_batch, span.phase, span.layer);
        if self.place == Some(place) {
            // Neighbours are of one place, mostly.
            let open = self.tracks.iter_mut().filter_map(|(_, _, current)| current.as_mut());
            open.for_each(|frame| frame.end = end.max(frame.end));
            return;
        }
        self.place = Some(place);
        for (kind, slices, current) in &mut self.tracks {
            let what = annotation(*kind, span);
            match (current.as_mut(), what) {
                (Some(frame), Some(what)) if frame.what == what => frame.end = end.max(frame.end),
                (_, what) => {
                    let over = current.take();
                    *current = what.map(|what| OpenFrame { what, start, end });
                    over.iter().for_each(|frame| write(frame, slices, (names, self.detail), into));
                }
            }
        }
    }

    /// Ends everything.
    pub(super) fn finish(&mut self, names: &Names, into: &mut Writing<'_>) {
        for (_, slices, current) in &mut self.tracks {
            current.take().iter().for_each(|frame| write(frame, slices, (names, self.detail), into));
            slices.finish(into);
            into.written.clipped += slices.clipped;
        }
    }
}

/// What an annotation of a kind around a kernel would say; none, where the kernel belongs to none.
fn annotation(kind: SpanKind, span: &Span) -> Option<Span> {
    let depth = kind as u8;
    let is_known = match kind {
        SpanKind::Step => span.step.is_some(),
        SpanKind::MicroBatch => span.micro_batch.is_some(),
        SpanKind::Phase => span.phase.is_some(),
        _ => span.layer.is_some(),
    };
    let within = |other: SpanKind| depth >= other as u8;
    is_known.then(|| Span {
        step: span.step,
        micro_batch: span.micro_batch.filter(|_| within(SpanKind::MicroBatch)),
        phase: span.phase.filter(|_| within(SpanKind::Phase)),
        layer: span.layer.filter(|_| within(SpanKind::Layer)),
        ..Span::new(kind, FIRST_NAME, Nanos(0), Nanos(0))
    })
}

// The order of the kinds is that of their depth.
const _: () = assert!(
    (SpanKind::Step as u8) < SpanKind::MicroBatch as u8
        && (SpanKind::MicroBatch as u8) < SpanKind::Phase as u8
        && (SpanKind::Phase as u8) < SpanKind::Layer as u8
);

fn write(frame: &OpenFrame, slices: &mut Slices, (names, detail): (&Names, Detail), into: &mut Writing<'_>) {
    let mut event = Event::default();
    event.begin(Some(tags(&frame.what, detail)));
    arguments(&mut event, &frame.what, frame.end.saturating_sub(frame.start), None, detail);
    slices.push(into, (frame.start, frame.end), &mut event, (label(&frame.what), names));
    into.written.frames += 1;
}
