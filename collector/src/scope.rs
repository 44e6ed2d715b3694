//! What a program opens and closes: annotations, and spans under them.

use std::marker::PhantomData;

use stepscope_traces::{
    Correlation, Group, Layer, MicroBatch, NameId, Nanos, Phase, Span, SpanKind, Stage, Step, Stream,
};

use crate::{
    lane::{self, Event},
    recorder::{Recorder, Shared},
    ticks::Ticks,
};

/// Where in the training a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The step.
    pub step: Option<Step>,
    /// The micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// The phase.
    pub phase: Option<Phase>,
    /// The layer.
    pub layer: Option<Layer>,
    /// The pipeline stage.
    pub stage: Option<Stage>,
}

impl Context {
    /// Writes this context into a span.
    #[inline]
    pub fn apply(&self, span: &mut Span) {
        span.step = self.step;
        span.micro_batch = self.micro_batch;
        span.phase = self.phase;
        span.layer = self.layer;
        span.stage = self.stage;
    }
}

/// An annotation that is open on this thread; it is recorded, and closed, when this is dropped.
#[must_use = "an annotation ends when it is dropped"]
pub struct Scope<'a> {
    // In this order: what the span records is the context before it is left.
    #[expect(dead_code, reason = "dropped for what it does")]
    span: OpenSpan<'a>,
    #[expect(dead_code, reason = "dropped for what it does")]
    entered: Entered<'a>,
}

impl<'a> Scope<'a> {
    pub(crate) fn open(
        recorder: &'a Recorder,
        kind: SpanKind,
        name: NameId,
        change: impl FnOnce(Context) -> Context,
    ) -> Scope<'a> {
        let entered = Entered::open(recorder, change);
        Scope { span: OpenSpan::open(recorder, kind, name), entered }
    }
}

/// A context this thread is in until this is dropped; it is not recorded itself.
#[must_use = "a context ends when it is dropped"]
pub struct Entered<'a> {
    shared: Option<&'a Shared>,
    before: Context,
    /// Belongs to the thread it was opened on.
    thread: PhantomData<*const ()>,
}

impl<'a> Entered<'a> {
    pub(crate) fn open(recorder: &'a Recorder, change: impl FnOnce(Context) -> Context) -> Entered<'a> {
        let shared = recorder.shared();
        let before = shared.map(|shared| lane::replace_context(shared, change)).unwrap_or_default();
        Entered { shared, before, thread: PhantomData }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            lane::replace_context(shared, |_| self.before);
        }
    }
}

/// A span that is going on; it is recorded when this is dropped, in the context this thread then has.
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan<'a> {
    /// Whom to tell, and when it began; nobody when nothing is recorded.
    began: Option<(&'a Shared, Ticks)>,
    span: Span,
}

impl<'a> OpenSpan<'a> {
    #[inline]
    pub(crate) fn open(recorder: &'a Recorder, kind: SpanKind, name: NameId) -> OpenSpan<'a> {
        let began = recorder.shared().map(|shared| (shared, shared.counter.read()));
        OpenSpan { began, span: Span::new(kind, name, Nanos(0), Nanos(0)) }
    }

    /// The stream it runs on.
    pub fn stream(mut self, stream: Stream) -> Self {
        self.span.stream = Some(stream);
        self
    }

    /// What ties it to its launch, or to its part on other ranks.
    pub fn correlation(mut self, correlation: Correlation) -> Self {
        self.span.correlation = Some(correlation);
        self
    }

    /// The bytes it moves.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.span.bytes = Some(bytes);
        self
    }

    /// The process group it runs in.
    pub fn group(mut self, group: Group) -> Self {
        self.span.group = Some(group);
        self
    }

    /// The floating-point operations it does.
    pub fn flops(mut self, flops: u64) -> Self {
        self.span.flops = Some(flops);
        self
    }
}

impl Drop for OpenSpan<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((shared, began)) = self.began {
            let ended = shared.counter.read();
            lane::push(shared, |context| {
                context.apply(&mut self.span);
                Event::TickedSpan(self.span, began, ended)
            });
        }
    }
}
