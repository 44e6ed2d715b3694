//! The spans of a rank in the order in which they begin.
//!
//! A span takes several times the room of what it is made of, and there are millions, so each is made when its turn comes.

use super::{
    annotation::TrainingContext,
    places::{Annotated, PlaceFinder},
    rows::{Activity, Call},
};
use crate::{
    ids::{Correlation, NameId, Nanos, Stream},
    tables::Span,
    vocabulary::SpanKind,
};

/// What spans are made of.
pub(super) struct SpanSources<'a> {
    pub(super) activities: &'a [Activity],
    pub(super) annotations: &'a [(Annotated, NameId)],
    pub(super) calls: &'a [Call],
    /// Which of the calls launched something.
    pub(super) launched: &'a [bool],
    /// Operators of the host.
    pub(super) operators: &'a [Span],
    pub(super) places: PlaceFinder<'a>,
}

/// What one span is made of.
#[derive(Clone, Copy)]
pub(super) enum SpanSource {
    Activity(u32),
    Annotation(u32),
    Launch(u32),
    Operator(u32),
}

impl SpanSources<'_> {
    /// When each span begins and what it is made of, in order.
    pub(super) fn in_order(&self) -> Vec<(Nanos, SpanSource)> {
        let launches = self.launched.iter().filter(|launched| **launched).count();
        let host = self.annotations.len() + launches + self.operators.len();
        let mut order = Vec::with_capacity(self.activities.len() + host);
        let activities = self.activities.iter().map(|activity| activity.span.start_ns);
        order.extend(activities.zip(0..).map(|(start, index)| (start, SpanSource::Activity(index))));
        let annotations = self.annotations.iter().map(|(annotated, _)| annotated.start);
        order.extend(annotations.zip(0..).map(|(start, index)| (start, SpanSource::Annotation(index))));
        let launches = self.calls.iter().zip(self.launched).zip(0..).filter(|((_, launched), _)| **launched);
        order.extend(launches.map(|((call, _), index)| (call.start, SpanSource::Launch(index))));
        let operators = self.operators.iter().map(|span| span.start_ns);
        order.extend(operators.zip(0..).map(|(start, index)| (start, SpanSource::Operator(index))));
        // Each kind of them is nearly in order, which a stable sort makes use of.
        order.sort_by_key(|(start, _)| *start);
        order
    }

    /// The span that is made of something.
    pub(super) fn span(&mut self, source: SpanSource) -> Span {
        match source {
            SpanSource::Activity(index) => self.activities[index as usize].span,
            SpanSource::Annotation(index) => self.annotation(self.annotations[index as usize]),
            SpanSource::Launch(index) => self.launch(self.calls[index as usize]),
            SpanSource::Operator(index) => self.operators[index as usize],
        }
    }

    fn annotation(&mut self, (annotated, name): (Annotated, NameId)) -> Span {
        let Annotated { thread, start, end, place } = annotated;
        let mut span = Span { stream: thread.map(Stream), ..Span::new(place.kind(), name, start, end - start) };
        let around = self.places.at(thread, start);
        TrainingContext { step: place.step.or(around.step), ..place }.put(&mut span);
        span
    }

    fn launch(&mut self, call: Call) -> Span {
        let mut span = Span {
            stream: call.thread.map(Stream),
            correlation: Some(Correlation(call.correlation)),
            ..Span::new(SpanKind::Launch, call.name, call.start, call.duration)
        };
        self.places.at(call.thread, call.start).put(&mut span);
        span
    }
}
