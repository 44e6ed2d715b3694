//! What a rank did, in as few bytes as the questions need: intervals, and a small table of where they belong.

use std::collections::HashMap;

use stepscope_plan::Axis;
use stepscope_traces::{GroupInfo, Layer, MicroBatch, NameId, Phase, SpanKind, Spans, Step};

use crate::figures::Class;

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
}

/// What a rank did, by time once it is sorted.
#[derive(Default)]
pub(crate) struct Activities {
    pub(crate) items: Vec<Activity>,
    pub(crate) places: Vec<ActivityPlace>,
    numbers: HashMap<ActivityPlace, u32>,
    /// Of each group, the axis.
    axes: HashMap<u32, Axis>,
}

impl Activities {
    pub(crate) fn new(groups: &[GroupInfo]) -> Activities {
        let axes = groups.iter().map(|group| (group.group.0, group.axis)).collect();
        Activities { axes, ..Activities::default() }
    }

    /// Takes what is activity of some spans.
    pub(crate) fn take(&mut self, spans: &Spans) {
        // Neighbours are of one place, mostly.
        let mut last: Option<(ActivityPlace, u32)> = None;
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            let group = spans.group.get(row).filter(|_| class == Class::Communication);
            let axis = group.and_then(|group| self.axes.get(&group.0).copied());
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
            self.items.push(Activity { start, end, place: number, name });
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
    }

    pub(crate) fn place(&self, activity: &Activity) -> &ActivityPlace {
        &self.places[activity.place as usize]
    }
}
