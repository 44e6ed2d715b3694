//! Spans as slices: kernels on their streams, annotations above them, and calls of the host below.

use std::{collections::HashMap, mem};

use super::{
    Note, RankPlan,
    detail::{Detail, Level},
    labels::{Argument, Label, category},
    order::{Timed, Waiting},
    schema::TrackEvent,
    slices::{MOST_LANES, Slices, Thread},
    timing::Timing,
    writing::Writing,
};
use crate::{
    ids::{Correlation, Stream},
    names::Names,
    tables::{Span, Spans},
    vocabulary::SpanKind,
};

/// Where a rank's threads begin, in the order in which they are shown.
const ANNOTATIONS: i32 = 8;
const STREAMS: i32 = 100;
const HOST_THREADS: i32 = 5_000;
/// More streams, or threads, than this share the last one's track, and lie beside each other there.
const MOST_STREAMS: usize = 500;
const MOST_HOST_THREADS: usize = 500;

/// The annotations that have a track each, and what it is called.
const ANNOTATED: [(SpanKind, &str); 4] = [
    (SpanKind::Step, "steps"),
    (SpanKind::MicroBatch, "micro-batches"),
    (SpanKind::Phase, "phases"),
    (SpanKind::Layer, "layers"),
];

/// The slices of a rank.
pub(super) struct SpanSlices<'a> {
    plan: &'a RankPlan<'a>,
    detail: Detail,
    process: i32,
    timing: Timing<'a>,
    waiting: Waiting<(Span, u32)>,
    /// How much communication was seen, of the chosen steps.
    communication: u32,
    annotations: [Slices; ANNOTATED.len()],
    streams: HashMap<Option<Stream>, Slices>,
    host: HashMap<Option<Stream>, Slices>,
    launched: Launched,
    /// Used for one event after another.
    event: TrackEvent,
}

impl<'a> SpanSlices<'a> {
    pub(super) fn new(plan: &'a RankPlan<'a>, detail: Detail, process: i32, timing: Timing<'a>) -> SpanSlices<'a> {
        let slices = |(place, name): (usize, &str)| {
            let first = process + ANNOTATIONS + (place * MOST_LANES) as i32;
            Slices::new(Thread { process, first, name: name.into() }, true)
        };
        SpanSlices {
            annotations: [0, 1, 2, 3].map(|place| slices((place, ANNOTATED[place].1))),
            plan,
            detail,
            process,
            timing,
            waiting: Waiting::new(),
            communication: 0,
            streams: HashMap::new(),
            host: HashMap::new(),
            launched: Launched::default(),
            event: TrackEvent::default(),
        }
    }

    /// Takes some spans, and writes those that nothing can come before any more.
    pub(super) fn take(&mut self, spans: &Spans, names: &Names, into: &mut Writing<'_>) {
        for span in spans.rows() {
            let is_chosen = (self.plan.is_chosen)(span.step);
            let mut number = u32::MAX;
            if span.kind.is_communication() && is_chosen {
                number = self.communication;
                self.communication += 1;
            }
            let unnumbered = span.step.is_none() && self.plan.window.touches(span.interval());
            if !(is_chosen || unnumbered) || !self.detail.has(level(span.kind)) {
                continue;
            }
            let (start, end) = self.timing.interval(span.start_ns, span.duration_ns);
            if self.plan.has_launches && self.detail.has(Level::Host) {
                self.launched.expect(&span);
            }
            self.waiting.push(Timed { start, end, what: (span, number) });
            if self.waiting.is_full() {
                self.release(false, names, into);
            }
        }
    }

    /// Writes the rest, and ends everything.
    pub(super) fn finish(mut self, names: &Names, into: &mut Writing<'_>) {
        self.release(true, names, into);
        let rest = self.streams.values_mut().chain(self.host.values_mut());
        for slices in self.annotations.iter_mut().chain(rest) {
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

    fn slice(&mut self, event: Timed<(Span, u32)>, names: &Names, into: &mut Writing<'_>) {
        let Timed { start, end, what: (span, number) } = event;
        let mut event = mem::take(&mut self.event);
        event.debug_annotations.clear();
        event.flow_ids_old.clear();
        event.category_iids.clear();
        event.category_iids.push(category(span.kind));
        let note = (number != u32::MAX).then(|| (self.plan.note)(number as usize));
        event.flow_ids_old.extend(note.and_then(|note| note.flow));
        event.flow_ids_old.extend(self.launched.flow(&span, &mut into.written.next_flow));
        let is_detail = level(span.kind) == Level::Kernels;
        if !is_detail || self.detail.has(Level::Arguments) {
            arguments(&mut event, &span, end - start, note);
        }
        into.written.count(&span, end - start, &event);
        let label = label(&span);
        let slices = self.slices(&span);
        slices.push(into, (start, end), &mut event, (label, names));
        self.event = event;
    }

    /// Where a span is shown.
    fn slices(&mut self, span: &Span) -> &mut Slices {
        if let Some(place) = ANNOTATED.iter().position(|(kind, _)| *kind == span.kind) {
            return &mut self.annotations[place];
        }
        let process = self.process;
        if matches!(span.kind, SpanKind::Range | SpanKind::Launch) {
            let place = self.host.len().min(MOST_HOST_THREADS - 1);
            return self.host.entry(span.stream).or_insert_with(|| {
                let name = span.stream.map_or("host".into(), |thread| format!("thread {thread}"));
                let first = process + HOST_THREADS + (place * MOST_LANES) as i32;
                Slices::new(Thread { process, first, name }, true)
            });
        }
        let known = self.plan.streams.iter().position(|(stream, _)| *stream == span.stream);
        let place = known.unwrap_or(MOST_STREAMS).min(MOST_STREAMS - 1);
        let name = known.map_or("stream", |place| &self.plan.streams[place].1);
        self.streams.entry(span.stream).or_insert_with(|| {
            let first = process + STREAMS + (place * MOST_LANES) as i32;
            Slices::new(Thread { process, first, name: name.into() }, false)
        })
    }
}

/// The level that a span belongs to.
fn level(kind: SpanKind) -> Level {
    match kind {
        SpanKind::Kernel | SpanKind::Copy | SpanKind::Set => Level::Kernels,
        SpanKind::Range | SpanKind::Launch => Level::Host,
        SpanKind::Layer => Level::Layers,
        SpanKind::MicroBatch | SpanKind::Phase => Level::Phases,
        // Steps are always written: no level is after the last one.
        SpanKind::Step => Level::ALL[Level::ALL.len() - 1],
        _ => Level::Communication,
    }
}

/// What a span is called.
fn label(span: &Span) -> Label {
    let number = match span.kind {
        SpanKind::Step => span.step.map(|step| step.0),
        SpanKind::MicroBatch => span.micro_batch.map(|micro_batch| micro_batch.0),
        SpanKind::Layer => span.layer.map(|layer| layer.0),
        SpanKind::Phase => return span.phase.map_or(Label::Recorded(span.name), Label::Of),
        _ => None,
    };
    number.map_or(Label::Recorded(span.name), |number| Label::Numbered(span.kind, number))
}

/// What is known of a span besides its name and its time.
fn arguments(event: &mut TrackEvent, span: &Span, duration: u64, note: Option<Note>) {
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

/// Which launches and activities wait, by what ties them together: a flow has two ends, or is none.
#[derive(Default)]
struct Launched {
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
    fn expect(&mut self, span: &Span) {
        if let Some((correlation, is_launch)) = Launched::is_launch(span) {
            let pair = self.waiting.entry(correlation).or_default();
            *(if is_launch { &mut pair.launches } else { &mut pair.activities }) += 1;
        }
    }

    /// The flow of something that is written now: from a launch to what waits for it.
    fn flow(&mut self, span: &Span, next: &mut u64) -> Option<u64> {
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
