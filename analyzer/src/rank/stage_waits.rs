//! When a stage of a pipeline has no pass of a micro-batch in progress, and waits.

use stepscope_plan::Axis;
use stepscope_traces::SpanKind;

use crate::{
    figures::{Class, IdleReason},
    rank::{activity::Activities, axes::AxisNames, idle_reasons::IdleStretch, intervals::Intervals, sweep::Slice},
    stored::{fields, told_as},
};

/// What a stage does while it waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Nothing.
    Idle(IdleReason),
    /// It communicates, and nothing hides that.
    Exposed { operation: SpanKind, axis: Option<Axis> },
}

told_as!(
    Waiting as (Option<IdleReason>, Option<SpanKind>, Option<Axis>),
    |waiting: &Waiting| match *waiting {
        Waiting::Idle(reason) => (Some(reason), None, None),
        Waiting::Exposed { operation, axis } => (None, Some(operation), axis),
    },
    |told| match told {
        (Some(reason), None, None) => Some(Waiting::Idle(reason)),
        (None, Some(operation), axis) => Some(Waiting::Exposed { operation, axis }),
        _ => None,
    }
);

impl Waiting {
    /// What a stage does in a stretch in which it communicates, if that may be waiting for another stage: messages from or to
    /// it. Where no axis is known, what ranks do together is none.
    fn in_exposed(slice: &Slice<'_>, activities: &Activities) -> Option<Waiting> {
        use SpanKind::{Communication, Receive, Send};
        let place = &activities.places[slice.owner()?.place as usize];
        let operation = place.operation.unwrap_or(Communication);
        let is_of_stages = match place.axis {
            Some(axis) => axis == Axis::Pipeline,
            None => matches!(operation, Send | Receive | Communication),
        };
        let is_it = place.class == Class::Communication && is_of_stages;
        is_it.then_some(Waiting::Exposed { operation, axis: place.axis })
    }
}

/// A stretch of time in which a stage waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageWait {
    /// Which of the windows.
    pub(crate) window: usize,
    pub(crate) waiting: Waiting,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

fields!(StageWait { window, waiting, start, end });

/// All of them of a rank, by time.
#[derive(Default)]
pub(crate) struct StageWaits {
    pub(crate) waits: Vec<StageWait>,
    /// When it worked on a micro-batch.
    work: Intervals,
    /// How much of that is over.
    worked: usize,
}

fields!(StageWaits { waits; work, worked });

impl StageWaits {
    pub(crate) fn new(work: Intervals) -> StageWaits {
        StageWaits { work, ..StageWaits::default() }
    }

    /// Adds a stretch of time in a window in which something runs. Stretches come in order, and are cut wherever work begins
    /// or ends.
    pub(crate) fn add(&mut self, window: usize, slice: &Slice<'_>, activities: &Activities) {
        if let Some(waiting) = Waiting::in_exposed(slice, activities) {
            self.push(StageWait { window, waiting, start: slice.start, end: slice.end });
        }
    }

    /// Adds a stretch in which nothing does.
    pub(crate) fn add_idle(&mut self, window: usize, (start, end, reason): IdleStretch) {
        self.push(StageWait { window, waiting: Waiting::Idle(reason), start, end });
    }

    fn push(&mut self, wait: StageWait) {
        if self.works_at(wait.start) {
            return;
        }
        match self.waits.last_mut() {
            Some(last) if (last.window, last.waiting, last.end) == (wait.window, wait.waiting, wait.start) => {
                last.end = wait.end;
            }
            _ => self.waits.push(wait),
        }
    }

    /// Whether a micro-batch is worked on.
    fn works_at(&mut self, time: i64) -> bool {
        let mut left = self.work.iter().skip(self.worked);
        let over = left.clone().take_while(|(_, end)| *end <= time).count();
        self.worked += over;
        left.nth(over).is_some_and(|(start, _)| start <= time)
    }

    /// Calls axes by other names, of which no two become one.
    pub(crate) fn rename_axes(&mut self, names: &AxisNames) {
        for wait in &mut self.waits {
            if let Waiting::Exposed { axis, .. } = &mut wait.waiting {
                names.rename(axis);
            }
        }
    }
}
