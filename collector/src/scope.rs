//! What a program opens and closes: annotations, spans under them, and what it says of launches.

use std::marker::PhantomData;

use stepscope_traces::{Correlation, Group, NameId, Nanos, Sequence, Span, SpanKind, Stream};

use crate::{
    communication::OperationNumber,
    context::{Change, Context},
    launch::{LaunchInfo, OpenLaunch},
    packed::PackedSpan,
    queue::Event,
    shared::Shared,
    thread_state,
    ticks::Ticks,
};

/// An annotation that is open on this thread. It is recorded, and closed, when this is dropped; annotations may be
/// closed in any order.
#[must_use = "an annotation ends when it is dropped"]
pub struct Scope<'a> {
    began: Option<(&'a Shared, Ticks)>,
    span: Span,
    #[expect(dead_code, reason = "closes the annotation when it is dropped, after the span was recorded")]
    entered: Entered<'a>,
}

impl<'a> Scope<'a> {
    pub(crate) fn open(shared: Option<&'a Shared>, kind: SpanKind, name: NameId, change: Change) -> Scope<'a> {
        let (entered, place) = Entered::open(shared, change);
        let mut span = Span::new(kind, name, Nanos(0), Nanos(0));
        if let Some((context, thread)) = place {
            context.apply(&mut span);
            span.stream = Some(thread);
        }
        if let (Some(shared), SpanKind::Phase, Some(phase)) = (shared, kind, span.phase) {
            shared.aside.begin(phase);
        }
        Scope { began: shared.map(|shared| (shared, shared.counter.read())), span, entered }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if let Some((shared, began)) = self.began {
            let ended = shared.counter.read();
            if let (SpanKind::Phase, Some(phase)) = (self.span.kind, self.span.phase) {
                shared.aside.end(phase);
            }
            thread_state::push(shared, |_, _| Event::Span(PackedSpan::ticked(&self.span, began, ended)));
        }
    }
}

/// A context this thread is in until this is dropped; it is not recorded itself.
#[must_use = "a context ends when it is dropped"]
pub struct Entered<'a> {
    scope: Option<(&'a Shared, u64)>,
    /// Belongs to the thread it was opened on.
    thread: PhantomData<*const ()>,
}

impl<'a> Entered<'a> {
    /// Also tells where the thread now is, and which thread it is.
    pub(crate) fn open(shared: Option<&'a Shared>, change: Change) -> (Entered<'a>, Option<(Context, Stream)>) {
        let opened = shared.and_then(|shared| Some((shared, thread_state::open_scope(shared, change)?)));
        let scope = opened.map(|(shared, (number, ..))| (shared, number));
        (Entered { scope, thread: PhantomData }, opened.map(|(_, (_, context, thread))| (context, thread)))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some((shared, number)) = self.scope {
            thread_state::close_scope(shared, number);
        }
    }
}

/// A span that is going on; it is recorded when this is dropped, in the context this thread then has.
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan<'a> {
    /// The recorder and the start time; `None` when nothing is recorded.
    began: Option<(&'a Shared, Ticks)>,
    span: Span,
    /// Of communication, which others may wait for.
    operation: Option<OperationNumber>,
}

impl<'a> OpenSpan<'a> {
    #[inline]
    pub(crate) fn open(shared: Option<&'a Shared>, kind: SpanKind, name: NameId) -> OpenSpan<'a> {
        let began = shared.map(|shared| (shared, shared.counter.read()));
        OpenSpan { began, span: Span::new(kind, name, Nanos(0), Nanos(0)), operation: None }
    }

    /// The stream it runs on.
    #[inline]
    pub fn stream(mut self, stream: Stream) -> Self {
        self.span.stream = Some(stream);
        self
    }

    /// What ties it to its launch.
    #[inline]
    pub fn correlation(mut self, correlation: Correlation) -> Self {
        self.span.correlation = Some(correlation);
        self
    }

    /// The bytes it moves.
    #[inline]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.span.bytes = Some(bytes);
        self
    }

    /// The process group a collective runs in, and the collective's number in it.
    #[inline]
    pub fn collective(mut self, group: Group, sequence: Sequence) -> Self {
        self.span.group = Some(group);
        self.span.sequence = Some(sequence);
        let shared = self.began.map(|(shared, _)| shared).filter(|shared| !shared.is_forked());
        self.operation = shared.map(|shared| shared.communication.begin(self.span.kind, group, sequence));
        self
    }

    /// The floating-point operations it does.
    #[inline]
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
            self.operation.into_iter().for_each(|operation| shared.communication.end(operation));
            thread_state::push(shared, |context, thread| {
                context.apply(&mut self.span);
                if self.span.kind == SpanKind::Launch {
                    self.span.stream = Some(thread);
                }
                Event::Span(PackedSpan::ticked(&self.span, began, ended))
            });
        }
    }
}

/// Says what this thread launches next, until it is dropped.
#[must_use = "what is launched after this is dropped is not described by it"]
pub struct Launching<'a> {
    /// What was said before.
    outer: Option<(&'a Shared, OpenLaunch)>,
    /// Belongs to the thread it was opened on.
    thread: PhantomData<*const ()>,
}

impl<'a> Launching<'a> {
    #[inline]
    pub(crate) fn open(shared: Option<&'a Shared>, info: LaunchInfo) -> Launching<'a> {
        let outer = shared.and_then(|shared| Some((shared, thread_state::open_launch(shared, info)?)));
        Launching { outer, thread: PhantomData }
    }
}

impl Drop for Launching<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((shared, outer)) = self.outer {
            thread_state::close_launch(shared, outer);
        }
    }
}
