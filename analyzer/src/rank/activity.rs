//! What a rank did, in as few bytes as the questions need: intervals, and a small table of where they belong.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;
use stepscope_plan::Axis;
use stepscope_traces::{GroupInfo, Layer, MicroBatch, NameId, Phase, SpanKind, Spans, Step};

use crate::{
    figures::Class,
    rank::axes::{Axes, is_hand_over, may_be_of_stages},
};

/// Where in the training an activity belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActivityPlace {
    pub(crate) class: Class,
    pub(crate) step: Option<Step>,
    pub(crate) micro_batch: Option<MicroBatch>,
    pub(crate) phase: Option<Phase>,
    pub(crate) layer: Option<Layer>,
    /// How it communicates, if it does.
    pub(crate) operation: Option<SpanKind>,
    /// Along which axis it communicates, where that is known.
    pub(crate) axis: Option<Axis>,
}

impl ActivityPlace {
    /// Where a span of a class belongs, that communicates along an axis.
    pub(crate) fn of(spans: &Spans, row: usize, class: Class, axis: Option<Axis>) -> ActivityPlace {
        ActivityPlace {
            class,
            step: spans.step.get(row),
            micro_batch: spans.micro_batch.get(row),
            phase: spans.phase.get(row),
            layer: spans.layer.get(row),
            operation: (class == Class::Communication).then(|| spans.kind.get(row)),
            axis,
        }
    }
}

/// One interval of activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Which of the places.
    pub(crate) place: u32,
    pub(crate) name: NameId,
    /// Who launched it, of which the number is no name's if it is not known.
    origin: NameId,
    /// The call that launched it, if that is known.
    pub(crate) call: Call,
}

/// No name has this number: there are fewer.
const NOBODY: NameId = NameId(u32::MAX);

impl Activity {
    /// Who launched it.
    pub(crate) fn origin(&self) -> Option<NameId> {
        Some(self.origin).filter(|origin| *origin != NOBODY)
    }
}

/// A call that launches something, in as few bytes as its time needs to tell it from others; 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call(u32);

impl Call {
    pub(crate) fn of(spans: &Spans, row: usize) -> Call {
        // Recorders count, and those that count further than this have done so for hours.
        Call(spans.correlation.get(row).map_or(0, |correlation| correlation.0 as u32))
    }

    #[cfg(test)]
    pub(crate) fn numbered(number: u32) -> Call {
        Call(number)
    }

    pub(crate) fn is_known(self) -> bool {
        self != Call(0)
    }
}

/// What a rank did, by time once it is sorted.
#[derive(Default)]
pub(crate) struct Activities {
    pub(crate) items: Vec<Activity>,
    pub(crate) places: Vec<ActivityPlace>,
    numbers: HashMap<ActivityPlace, u32>,
    axes: Axes,
}

impl Activities {
    pub(crate) fn new(groups: &[GroupInfo]) -> Activities {
        Activities { axes: Axes::of(groups), ..Activities::default() }
    }

    /// Takes what is activity of some spans.
    pub(crate) fn take(&mut self, spans: &Spans) {
        // Neighbours are of one place, mostly.
        let mut last: Option<(ActivityPlace, u32)> = None;
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            let group = spans.group.get(row).filter(|_| class == Class::Communication);
            let axis = group.and_then(|group| self.axes.along(group, spans.kind.get(row)));
            let place = ActivityPlace::of(spans, row, class, axis);
            let number = match last {
                Some((same, number)) if same == place => number,
                _ => self.number(place),
            };
            last = Some((place, number));
            let start = spans.start_ns.get(row).0;
            // A recording that says otherwise is damaged.
            let duration = spans.duration_ns.get(row).0.max(0);
            let (end, name) = (start.saturating_add(duration), spans.name.get(row));
            let (origin, call) = (spans.origin.get(row).unwrap_or(NOBODY), Call::of(spans, row));
            self.items.push(Activity { start, end, place: number, name, origin, call });
        }
    }

    fn number(&mut self, place: ActivityPlace) -> u32 {
        let next = self.places.len() as u32;
        *self.numbers.entry(place).or_insert_with(|| {
            self.places.push(place);
            next
        })
    }

    /// Sorts by start. Streams are sorted already, and the stable sort finds such runs.
    pub(crate) fn sort(&mut self) {
        self.items.sort_by_key(|activity| activity.start);
        self.put_messages_into_passes();
    }

    /// Gives messages between stages the pass that they are of: what is sent is of the one that ran before, what is received
    /// of the one that runs next. The thread that asks for them is in neither: a program that waits for gradients has not
    /// begun its backward pass. Where the program names the micro-batch, it has said so.
    fn put_messages_into_passes(&mut self) {
        let is_of_stages = |place: &ActivityPlace| {
            let along = may_be_of_stages(place.axis) && place.micro_batch.is_none();
            along && place.operation.is_some_and(is_hand_over)
        };
        if !self.places.iter().any(is_of_stages) {
            return;
        }
        let pass = |place: &ActivityPlace| {
            let phase = place.phase.filter(|phase| matches!(phase, Phase::Forward | Phase::Backward))?;
            (place.class == Class::Compute).then_some(phase)
        };
        let mut before: Option<Phase> = None;
        // What is received by then, the soonest first.
        let mut waiting: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        let mut phases: Vec<(usize, Phase)> = Vec::new();
        for (index, activity) in self.items.iter().enumerate() {
            let place = &self.places[activity.place as usize];
            if let Some(phase) = pass(place) {
                while waiting.peek().is_some_and(|Reverse((end, _))| *end <= activity.start) {
                    phases.extend(waiting.pop().map(|Reverse((_, message))| (message, phase)));
                }
                before = Some(phase);
            } else if is_of_stages(place) {
                match place.operation {
                    Some(SpanKind::Send) => phases.extend(before.map(|phase| (index, phase))),
                    _ => waiting.push(Reverse((activity.end, index))),
                }
            }
        }
        for (index, phase) in phases {
            let place = ActivityPlace { phase: Some(phase), ..self.places[self.items[index].place as usize] };
            self.items[index].place = self.number(place);
        }
    }

    pub(crate) fn place(&self, activity: &Activity) -> &ActivityPlace {
        &self.places[activity.place as usize]
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Span;

    use super::*;
    use crate::test_runs::{span, talk};

    #[test]
    fn messages_are_of_the_pass_that_sends_or_awaits_them() {
        let mut spans = Spans::default();
        let kernel = |phase, start, end| Span { phase: Some(phase), ..span(SpanKind::Kernel, start, end) };
        // The thread that asks is in the forward pass until the backward pass begins.
        let message = |kind, start, end| Span { phase: Some(Phase::Forward), ..talk(kind, 0, 0, start, end) };
        for span in [
            kernel(Phase::Forward, 0, 10),
            message(SpanKind::Send, 10, 12),
            message(SpanKind::Receive, 12, 25),
            kernel(Phase::Forward, 15, 20),
            kernel(Phase::Backward, 25, 35),
            message(SpanKind::Send, 35, 37),
            message(SpanKind::Communication, 40, 45),
            kernel(Phase::Backward, 45, 50),
            message(SpanKind::Receive, 60, 70),
        ] {
            spans.push(&span);
        }
        let mut activities = Activities::new(&[]);
        activities.take(&spans);
        activities.sort();
        let phases: Vec<Option<Phase>> = activities
            .items
            .iter()
            .map(|activity| activities.place(activity))
            .filter(|place| place.class == Class::Communication)
            .map(|place| place.phase)
            .collect();
        use Phase::{Backward, Forward};
        let expected = [Forward, Backward, Backward, Backward, Forward].map(Some);
        assert_eq!(phases, expected, "nothing follows the last one: it is left as it is");
    }
}
