//! Where each step of a rank goes, in parts that can be compared: kernel by kernel, operation by operation.
//!
//! Each moment of a step's window belongs to one part, by the rule of the breakdown: to the compute kernel that began
//! first, or where there is none to the communication that did, or to a copy, or it is idle. So the parts of a step add up
//! to its window, though kernels of several streams overlap. A kernel counts in the window in which it begins.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use stepscope_plan::Axis;
use stepscope_traces::{NameId, Names, Origin, Phase, SpanKind, Step};

use crate::{
    figures::Class,
    rank::{
        activity::{Activities, Activity, ActivityPlace},
        axes::AxisNames,
        stage_waits::Waiting,
        step_windows::StepWindow,
        sweep::Slice,
    },
    stored::{fields, told_as},
};

/// What a moment of a rank's step is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RankPart {
    /// A compute kernel, and the work that it was launched for, where that is known; of those that compute again what was
    /// computed before, apart.
    Kernel { name: NameId, work: Option<NameId>, recomputes: bool },
    /// Communication that no compute hides.
    Exposed { operation: SpanKind, axis: Option<Axis> },
    /// Copies and fills that nothing hides.
    Copies,
    /// Nothing runs.
    Idle,
}

/// A kernel with its work and whether it recomputes; or an exposed operation with its axis; or whether it is a copy.
type ToldPart = (Option<(NameId, Option<NameId>, bool)>, Option<(SpanKind, Option<Axis>)>, bool);

told_as!(
    RankPart as ToldPart,
    |part: &RankPart| match *part {
        RankPart::Kernel { name, work, recomputes } => (Some((name, work, recomputes)), None, false),
        RankPart::Exposed { operation, axis } => (None, Some((operation, axis)), false),
        RankPart::Copies => (None, None, true),
        RankPart::Idle => (None, None, false),
    },
    |told| match told {
        (Some((name, work, recomputes)), None, false) => Some(RankPart::Kernel { name, work, recomputes }),
        (None, Some((operation, axis)), false) => Some(RankPart::Exposed { operation, axis }),
        (None, None, true) => Some(RankPart::Copies),
        (None, None, false) => Some(RankPart::Idle),
        _ => None,
    }
);

impl RankPart {
    fn of(place: &ActivityPlace, name: NameId, work: Option<NameId>) -> RankPart {
        match (place.class, place.operation) {
            (Class::Compute, _) => RankPart::Kernel { name, work, recomputes: place.phase == Some(Phase::Recompute) },
            (Class::Communication, operation) => {
                RankPart::Exposed { operation: operation.unwrap_or(SpanKind::Communication), axis: place.axis }
            }
            (Class::Copy, _) => RankPart::Copies,
        }
    }
}

impl From<Waiting> for RankPart {
    fn from(waiting: Waiting) -> RankPart {
        match waiting {
            Waiting::Idle(_) => RankPart::Idle,
            Waiting::Exposed { operation, axis } => RankPart::Exposed { operation, axis },
        }
    }
}

/// What a part comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Moments that are its own.
    pub(crate) time_ns: i64,
    /// How many of it began.
    pub(crate) count: u64,
}

fields!(Amount { time_ns, count });

/// One step of a rank, in parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankStepParts {
    pub(crate) step: Option<Step>,
    pub(crate) parts: HashMap<RankPart, Amount>,
}

fields!(RankStepParts { step, parts });

/// All steps of a rank, in parts.
#[derive(Default)]
pub(crate) struct RankParts {
    /// In the order of the windows; without windows, one for all of the recording.
    pub(crate) steps: Vec<RankStepParts>,
    /// What its kernels are called.
    pub(crate) names: Names,
    /// Of who launched something, another one that launched the same work: modules and lines are not compared.
    same_work: HashMap<NameId, NameId>,
}

fields!(RankParts { steps, names; same_work });

impl RankParts {
    pub(crate) fn new(steps: &[StepWindow], activities: &Activities, names: &Names) -> RankParts {
        let named = |step: Option<Step>| RankStepParts { step, parts: HashMap::new() };
        let steps = match steps {
            [] => vec![named(None)],
            steps => steps.iter().map(|window| named(Some(window.step))).collect(),
        };
        RankParts { steps, same_work: same_work(activities, names), ..RankParts::default() }
    }

    fn part(&self, place: &ActivityPlace, name: NameId, origin: Option<NameId>) -> RankPart {
        RankPart::of(place, name, origin.and_then(|origin| self.same_work.get(&origin)).copied())
    }

    /// Calls axes by other names, of which no two become one.
    pub(crate) fn rename_axes(&mut self, names: &AxisNames) {
        let renamed = |mut part: RankPart| {
            if let RankPart::Exposed { axis, .. } = &mut part {
                names.rename(axis);
            }
            part
        };
        for step in &mut self.steps {
            step.parts = step.parts.drain().map(|(part, amount)| (renamed(part), amount)).collect();
        }
    }

    /// Says what its kernels are called: of all names, those that it needs.
    pub(crate) fn called(self, names: &Names) -> RankParts {
        let of_part = |part: &RankPart| match part {
            RankPart::Kernel { name, work, .. } => [Some(*name), *work],
            _ => [None, None],
        };
        let needed = self.steps.iter().flat_map(|step| step.parts.keys()).flat_map(of_part).flatten();
        let mut kept = Names::default();
        let needed: BTreeSet<NameId> = needed.collect();
        kept.extend(needed.into_iter().filter_map(|id| Some((id, names.get(id)?))));
        RankParts { names: kept, ..self }
    }

    /// Adds a stretch of time, and the window it lies in.
    pub(crate) fn add(&mut self, window: Option<usize>, slice: &Slice<'_>, activities: &Activities) {
        let Some(window) = (if self.is_whole() { Some(0) } else { window }) else { return };
        let part = slice.owner().map_or(RankPart::Idle, |owner| {
            self.part(&activities.places[owner.place as usize], owner.name, owner.origin)
        });
        self.steps[window].parts.entry(part).or_default().time_ns += slice.length();
    }

    /// Whether all of the recording is one part.
    fn is_whole(&self) -> bool {
        self.steps.iter().all(|step| step.step.is_none())
    }

    /// Counts what begins in each window. The activities are sorted by start.
    pub(crate) fn count(&mut self, windows: &[StepWindow], activities: &Activities) {
        let mut current = 0;
        for activity in &activities.items {
            while windows.get(current).is_some_and(|window| window.end <= activity.start) {
                current += 1;
            }
            let window = windows.get(current).filter(|window| window.start <= activity.start).map(|_| current);
            if let Some(place) = if self.is_whole() { Some(0) } else { window } {
                let part = self.part(activities.place(activity), activity.name, activity.origin());
                self.steps[place].parts.entry(part).or_default().count += 1;
            }
        }
    }
}

/// Of each that launched something, the first one that launched the same work.
fn same_work(activities: &Activities, names: &Names) -> HashMap<NameId, NameId> {
    let mut same = HashMap::new();
    let mut first: HashMap<String, NameId> = HashMap::new();
    for origin in activities.items.iter().filter_map(Activity::origin) {
        if same.contains_key(&origin) {
            continue;
        }
        if let Some(work) = names.get(origin).and_then(|text| Origin::of(text).work()) {
            same.insert(origin, *first.entry(work).or_insert(origin));
        }
    }
    same
}
