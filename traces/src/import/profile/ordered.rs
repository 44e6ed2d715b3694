//! The spans of a rank in the order in which they begin.
//!
//! A span takes several times the room of what it is made of, and there are millions, so each is made when its turn comes.

use std::sync::mpsc::channel;

use super::{
    annotation::TrainingContext,
    operator::OperatorCall,
    places::{Annotated, PlaceFinder},
    rows::{Activity, Call},
};
use crate::{
    beside::beside,
    ids::{Correlation, NameId, Nanos, Stream},
    tables::{Span, Spans, Table},
    vocabulary::SpanKind,
    window::Window,
};

/// What spans are made of.
pub(super) struct SpanSources<'a> {
    pub(super) activities: &'a [Activity],
    pub(super) annotations: &'a [(Annotated, NameId)],
    pub(super) calls: &'a [Call],
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

/// When spans begin and what each is made of.
pub(super) struct SpanOrder(Vec<(Nanos, SpanSource)>);

impl SpanOrder {
    /// All of them, one kind after the other. `launched`: which of the calls launched something.
    pub(super) fn of(
        activities: &[Activity],
        annotations: &[(Annotated, NameId)],
        (calls, launched): (&[Call], &[bool]),
        operators: &[OperatorCall],
    ) -> SpanOrder {
        let launches = launched.iter().filter(|launched| **launched).count();
        let host = annotations.len() + launches + operators.len();
        let mut order = Vec::with_capacity(activities.len() + host);
        let activities = activities.iter().map(|activity| activity.span.start_ns);
        order.extend(activities.zip(0..).map(|(start, index)| (start, SpanSource::Activity(index))));
        let annotations = annotations.iter().map(|(annotated, _)| annotated.start);
        order.extend(annotations.zip(0..).map(|(start, index)| (start, SpanSource::Annotation(index))));
        let launches = calls.iter().zip(launched).zip(0..).filter(|((_, launched), _)| **launched);
        order.extend(launches.map(|((call, _), index)| (call.start, SpanSource::Launch(index))));
        let operators = operators.iter().map(|operator| operator.start);
        order.extend(operators.zip(0..).map(|(start, index)| (start, SpanSource::Operator(index))));
        SpanOrder(order)
    }

    /// The same in order. Each kind of them is nearly in order, which a stable sort makes use of.
    pub(super) fn sorted(mut self) -> Vec<(Nanos, SpanSource)> {
        self.0.sort_by_key(|(start, _)| *start);
        self.0
    }
}

impl SpanSources<'_> {
    /// Makes spans in an order, of those that lie in a window, and shows tables of at most so many of them, each while the next
    /// one is made.
    pub(super) fn show(
        mut self,
        order: &[(Nanos, SpanSource)],
        window: Window,
        most: usize,
        mut show: impl FnMut(&mut Spans),
    ) {
        let (full, tables) = channel();
        let (empty, rooms) = channel::<Spans>();
        let make = move || {
            for part in order.chunks(most) {
                let mut table = rooms.try_recv().unwrap_or_default();
                table.clear();
                table.columns_mut().into_iter().for_each(|column| column.reserve(part.len()));
                let spans = part.iter().map(|(_, source)| self.span(*source));
                spans.filter(|span| window.touches(span.interval())).for_each(|span| table.push(&span));
                drop(full.send(table));
            }
        };
        beside("spans", make, || {
            for mut table in tables {
                show(&mut table);
                // Its room is used again, if any more are made.
                drop(empty.send(table));
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{import::profile::places::Places, names::FIRST_NAME};

    /// When the spans begin that lie in a window, in tables of at most so many.
    fn starts(starts: &[i64], window: Window, most: usize) -> Vec<Vec<i64>> {
        let span = |start: &i64| Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(*start), Nanos(1));
        let activity = |start: &i64| Activity { span: span(start), device: None, external: None };
        let activities: Vec<Activity> = starts.iter().map(activity).collect();
        let order = SpanOrder::of(&activities, &[], (&[], &[]), &[]).sorted();
        let places = Places::default();
        let mut tables = Vec::new();
        let sources = SpanSources {
            activities: &activities,
            annotations: &[],
            calls: &[],
            operators: &[],
            places: PlaceFinder::new(&places),
        };
        sources.show(&order, window, most, |spans| tables.push(spans.start_ns.iter().map(|start| start.0).collect()));
        tables
    }

    #[test]
    fn tables_have_all_spans_in_order() {
        let unordered = [5, 3, 9, 1, 7];
        assert_eq!(starts(&unordered, Window::ALL, 2), [vec![1, 3], vec![5, 7], vec![9]]);
        assert_eq!(starts(&unordered, Window::ALL, usize::MAX), [[1, 3, 5, 7, 9]]);
        assert_eq!(starts(&unordered, Window { from: Nanos(3), to: Nanos(6) }, 2), [vec![3], vec![5], vec![]]);
        assert!(starts(&[], Window::ALL, 2).is_empty());
    }
}
