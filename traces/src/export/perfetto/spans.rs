//! Spans as slices: what runs on streams, and below it what the host annotated and called.

use std::{collections::HashMap, mem};

use super::{
    RankPlan,
    arguments::{arguments, label, level, tags},
    detail::{Detail, Level},
    event::Event,
    exposed::Exposed,
    frames::{ANNOTATIONS, Frames},
    launches::Launched,
    order::{Timed, Waiting},
    parents::{Inside, Parents},
    slices::Slices,
    timing::Timing,
    tracks::TrackPlace,
    writing::Writing,
};
use crate::{
    ids::Stream,
    names::Names,
    tables::{Span, Spans},
    vocabulary::SpanKind,
};

/// Where a rank's streams begin among its tracks, and where the group of its host is, with its threads below what they
/// annotated.
const STREAMS: i32 = 100;
const HOST: i32 = 5_000;
const HOST_THREADS: i32 = 100;
/// More streams, or threads, than this share the last one's track, and lie beside each other there.
const MOST_STREAMS: usize = 500;
const MOST_HOST_THREADS: usize = 500;

/// The slices of a rank.
pub(super) struct SpanSlices<'a> {
    plan: &'a RankPlan<'a>,
    detail: Detail,
    parent: u64,
    /// The group of its host, once there is something in it.
    host: Option<u64>,
    timing: Timing<'a>,
    waiting: Waiting<Recorded>,
    /// How much communication was seen, of the chosen steps.
    communication: u32,
    frames: Frames,
    /// Annotations in the host's time.
    annotations: [Option<Slices>; ANNOTATIONS.len()],
    exposed: Exposed,
    streams: StreamTracks,
    threads: StreamTracks,
    launched: Launched,
    parents: Parents,
    /// Used for one event after another.
    event: Event,
}

/// A span that waits to be written.
#[derive(Clone, Copy)]
struct Recorded {
    span: Span,
    /// Its number among the rank's communication.
    number: Option<u32>,
    /// Whether it is shown itself, and not only looked at.
    is_shown: bool,
}

impl<'a> SpanSlices<'a> {
    pub(super) fn new(plan: &'a RankPlan<'a>, detail: Detail, parent: u64, timing: Timing<'a>) -> SpanSlices<'a> {
        SpanSlices {
            frames: Frames::new(parent, plan.main_stream, detail),
            annotations: [const { None }; ANNOTATIONS.len()],
            plan,
            detail,
            parent,
            host: None,
            timing,
            waiting: Waiting::new(),
            communication: 0,
            exposed: Exposed::new(parent),
            streams: StreamTracks::of(plan.streams.iter().map(|(stream, _)| *stream)),
            threads: StreamTracks::of([].into_iter()),
            launched: Launched::default(),
            parents: Parents::default(),
            event: Event::default(),
        }
    }

    /// Takes some spans, and writes those that nothing can come before any more.
    pub(super) fn take(&mut self, spans: &Spans, names: &Names, into: &mut Writing<'_>) {
        for span in spans.rows() {
            let is_chosen = (self.plan.is_chosen)(span.step);
            let mut number = None;
            if span.kind.is_communication() && is_chosen && self.plan.analyzed.touches(span.interval()) {
                number = Some(self.communication);
                self.communication += 1;
            }
            let unnumbered = span.step.is_none() && self.plan.window.touches(span.interval());
            let is_shown = level(span.kind).is_none_or(|level| self.detail.has(level));
            let is_activity = span.kind == SpanKind::Kernel || span.kind.is_communication();
            if !(is_chosen || unnumbered) || !(is_shown || is_activity) {
                continue;
            }
            let (start, end) = self.timing.interval(span.start_ns, span.duration_ns);
            if self.plan.has_launches && self.detail.has(Level::Host) {
                self.launched.expect(&span);
            }
            self.waiting.push(Timed { start, end, what: Recorded { span, number, is_shown } });
            if self.waiting.is_full() {
                self.release(false, names, into);
            }
        }
    }

    /// Writes the rest, and ends everything.
    pub(super) fn finish(mut self, names: &Names, into: &mut Writing<'_>) {
        self.release(true, names, into);
        self.frames.finish(names, into);
        self.exposed.finish(into);
        let streams = self.streams.tracks.iter_mut().chain(&mut self.threads.tracks);
        for slices in self.annotations.iter_mut().chain(streams).flatten() {
            slices.finish(into);
            into.written.clipped += slices.clipped;
        }
    }

    fn release(&mut self, all: bool, names: &Names, into: &mut Writing<'_>) {
        let mut waiting = mem::replace(&mut self.waiting, Waiting::new());
        waiting.release(all, |event| {
            if !into.packets.has_failed() {
                self.slice(event, names, into);
            }
        });
        self.waiting = waiting;
    }

    fn slice(&mut self, event: Timed<Recorded>, names: &Names, into: &mut Writing<'_>) {
        let Timed { start, end, what: Recorded { span, number, is_shown } } = event;
        self.exposed.take(span.kind, (start, end), into);
        if self.frames.are_told_by(&span) {
            self.frames.take(&span, (start, end), names, into);
        }
        if !is_shown {
            return;
        }
        let mut event = mem::take(&mut self.event);
        event.begin(Some(tags(&span, self.detail)));
        let note = number.map(|number| (self.plan.note)(number as usize));
        let flows = [note.and_then(|note| note.flow), self.launched.flow(&span, &mut into.written.next_flow)];
        flows.into_iter().flatten().for_each(|flow| event.flow(flow));
        arguments(&mut event, &span, end - start, note, self.detail);
        into.written.count(&span, end - start, event.flows());
        let label = label(&span);
        let mut parents = mem::take(&mut self.parents);
        let shows_parents = self.detail.has(Level::Arguments) && is_on_stream(span.kind);
        let inside = if shows_parents { parents.of(&span, names) } else { Inside::default() };
        let slices = self.slices(&span, into);
        slices.push_inside(into, (start, end), &mut event, (label, names), inside);
        self.parents = parents;
        self.event = event;
    }

    /// Where a span is shown.
    fn slices(&mut self, span: &Span, into: &mut Writing<'_>) -> &mut Slices {
        let parent = self.parent;
        let annotated = ANNOTATIONS.iter().position(|(kind, ..)| *kind == span.kind);
        if is_on_stream(span.kind) {
            let streams = &self.plan.streams;
            return self.streams.track(span.stream, MOST_STREAMS, |place| {
                let name = streams.get(place as usize).map_or("other streams", |(_, name)| name).into();
                Slices::new(TrackPlace { parent, order: STREAMS + place, name }, false)
            });
        }
        let host = || into.track(&TrackPlace { parent, order: HOST, name: "host".into() });
        let parent = *self.host.get_or_insert_with(host);
        if let Some(depth) = annotated {
            let place = || TrackPlace { parent, order: depth as i32, name: ANNOTATIONS[depth].1.into() };
            return self.annotations[depth].get_or_insert_with(|| Slices::new(place(), true));
        }
        self.threads.track(span.stream, MOST_HOST_THREADS, |place| {
            let name = span.stream.map_or("calls".into(), |thread| format!("thread {thread}"));
            Slices::new(TrackPlace { parent, order: HOST_THREADS + place, name }, true)
        })
    }
}

/// Whether a kind of span is shown on a stream, and not on the host.
fn is_on_stream(kind: SpanKind) -> bool {
    let annotates = ANNOTATIONS.iter().any(|(annotation, ..)| *annotation == kind);
    !annotates && !matches!(kind, SpanKind::Range | SpanKind::Launch)
}

/// The tracks of streams, or of threads, in the order in which they are shown.
struct StreamTracks {
    places: HashMap<Option<Stream>, usize>,
    tracks: Vec<Option<Slices>>,
    /// What was asked for last: neighbors are often of one.
    last: Option<(Option<Stream>, usize)>,
}

impl StreamTracks {
    /// Tracks for those that are known, in order.
    fn of(known: impl Iterator<Item = Option<Stream>>) -> StreamTracks {
        StreamTracks { places: known.zip(0..).collect(), tracks: Vec::new(), last: None }
    }

    /// The track of a stream; beyond `most` they share the last one.
    fn track(&mut self, stream: Option<Stream>, most: usize, new: impl FnOnce(i32) -> Slices) -> &mut Slices {
        let place = match self.last {
            Some((last, place)) if last == stream => place,
            _ => {
                let next = self.places.len();
                (*self.places.entry(stream).or_insert(next)).min(most - 1)
            }
        };
        self.last = Some((stream, place));
        if self.tracks.len() <= place {
            self.tracks.resize_with(place + 1, || None);
        }
        self.tracks[place].get_or_insert_with(|| new(place as i32))
    }
}
