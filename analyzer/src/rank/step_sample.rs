//! One step of a rank, activity by activity, for questions that sums do not answer: what its end depends on.
//!
//! As in all figures of a step, what crosses a border of its window is clipped, and what other steps do there belongs to it.
//!
//! Which steps count is known when all of the rank has been read. So a few are kept while it is: those of which the number
//! divides by a power of two that grows until there is room for them. Ranks may keep more or fewer, and all have those of the
//! highest power, so that they choose the same one without asking each other.

use std::collections::BTreeMap;

use stepscope_traces::{Family, Group, NameId, Names, Phase, Sequence, SpanKind, Spans, Step, Stream};

use crate::{
    figures::{Class, CountedSteps, IdleReason},
    rank::{
        activity::Activities, communication::CommunicationSpan, idle_reasons::IdleReasons, step_windows::StepWindow,
    },
    stored::fields,
};

/// How many activities are kept at most.
const MOST_ROWS: usize = 1 << 17;

/// Steps are numbered from here, for which to keep: programs evaluate, and save checkpoints, in steps of round numbers.
const OFFSET: i64 = 5;

/// One activity of the step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledActivity {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) stream: Option<Stream>,
    pub(crate) kind: SpanKind,
    pub(crate) class: Class,
    pub(crate) phase: Option<Phase>,
    pub(crate) group: Option<Group>,
    pub(crate) sequence: Option<Sequence>,
    name: NameId,
    /// What kind of work it is; known once the step is chosen.
    pub(crate) family: Family,
    /// Why nothing ran before it, if nothing did; known once the step is chosen.
    pub(crate) idle_before: Option<IdleReason>,
}

fields!(SampledActivity {
    start,
    end,
    stream,
    kind,
    class,
    phase,
    group,
    sequence,
    family,
    idle_before;
    name
});

impl SampledActivity {
    /// The beginning of the next step: it waits for all of this one.
    pub(crate) fn next_step(time: i64, idle_before: Option<IdleReason>) -> SampledActivity {
        SampledActivity {
            start: time,
            end: time,
            stream: None,
            kind: SpanKind::Kernel,
            class: Class::Compute,
            phase: None,
            group: None,
            sequence: None,
            name: NameId::default(),
            family: Family::Other,
            idle_before,
        }
    }
}

/// Steps that are kept while a rank is read.
#[derive(Default)]
pub(crate) struct StepSamples {
    /// Those of no step too, where there may be none.
    steps: BTreeMap<Option<Step>, Vec<SampledActivity>>,
    rows: usize,
    /// By which power of two the numbers of those divide that are kept.
    power: u32,
    /// Whether there was no room for what is of no step.
    is_too_long: bool,
}

/// One step of a rank: its activities by start.
pub(crate) struct StepSample {
    /// None, where the whole recording is one.
    pub(crate) step: Option<Step>,
    pub(crate) activities: Vec<SampledActivity>,
    /// When the next step begins, and why nothing ran before that, if nothing did; none, where that is not known.
    pub(crate) next: Option<(i64, Option<IdleReason>)>,
}

fields!(StepSample { step, activities, next });

/// How often the number of a step divides by two.
fn power(step: Step) -> u32 {
    (i64::from(step.0) + OFFSET).trailing_zeros()
}

impl StepSamples {
    pub(crate) fn take(&mut self, spans: &Spans) {
        // Neighbours are of one step, mostly.
        let mut last: Option<(Option<Step>, Option<Vec<SampledActivity>>)> = None;
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            let step = spans.step.get(row);
            if last.as_ref().is_none_or(|(other, _)| *other != step) {
                let rows = self.keeps(step).then(|| self.steps.remove(&step).unwrap_or_default());
                self.put_back(last.replace((step, rows)));
            }
            let Some((_, Some(rows))) = &mut last else { continue };
            let start = spans.start_ns.get(row).0;
            rows.push(SampledActivity {
                start,
                end: start.saturating_add(spans.duration_ns.get(row).0.max(0)),
                stream: spans.stream.get(row),
                kind: spans.kind.get(row),
                class,
                phase: spans.phase.get(row),
                group: spans.group.get(row),
                sequence: spans.sequence.get(row),
                name: spans.name.get(row),
                family: Family::Other,
                idle_before: None,
            });
            self.rows += 1;
            if self.rows > MOST_ROWS {
                self.put_back(last.take());
                self.make_room();
            }
        }
        self.put_back(last);
    }

    fn keeps(&self, step: Option<Step>) -> bool {
        step.map_or(!self.is_too_long, |step| power(step) >= self.power)
    }

    fn put_back(&mut self, rows: Option<(Option<Step>, Option<Vec<SampledActivity>>)>) {
        if let Some((step, Some(rows))) = rows {
            self.steps.insert(step, rows);
        }
    }

    /// Lets half of the steps go, again and again, until there is room.
    fn make_room(&mut self) {
        while self.rows > MOST_ROWS {
            let (step_rows, others): (usize, usize) =
                self.steps.iter().fold((0, 0), |(of_steps, others), (step, rows)| match step {
                    Some(_) => (of_steps + rows.len(), others),
                    None => (of_steps, others + rows.len()),
                });
            if others > step_rows {
                self.is_too_long = true;
            } else {
                self.power += 1;
            }
            let (power_kept, is_too_long) = (self.power, self.is_too_long);
            self.steps.retain(|step, _| step.map_or(!is_too_long, |step| power(step) >= power_kept));
            self.rows = self.steps.values().map(Vec::len).sum();
        }
    }

    /// The step that is chosen of those that count, with what kind of work each kernel is and why it may be late. `did` is all
    /// that the rank did.
    pub(crate) fn finish(
        mut self,
        counted: &CountedSteps,
        windows: &[StepWindow],
        names: &Names,
        idle: &IdleReasons,
        did: (&Activities, &[CommunicationSpan]),
    ) -> Option<StepSample> {
        let steps = self.steps.keys().filter(|step| counted.whole || step.is_some_and(|step| counted.counts(step)));
        let step = match counted.whole {
            // Of a recording with steps that is taken as a whole, one of them is no more the whole than another.
            true => steps.copied().next().filter(Option::is_none).filter(|_| self.steps.len() == 1)?,
            // Nothing follows the last one, such as a checkpoint.
            false => {
                let last = counted.steps.map(|[_, last]| last);
                steps.copied().max_by_key(|step| (*step != last, step.map(power)))?
            }
        };
        let mut activities = self.steps.remove(&step)?;
        let window = windows.iter().find(|window| Some(window.step) == step);
        if let Some(window) = window {
            activities.retain(|activity| activity.start < window.end);
            activities.iter_mut().for_each(|activity| activity.end = activity.end.min(window.end));
            activities.extend(of_others(window, did));
        }
        activities.sort_by_key(|activity| (activity.start, activity.end));
        // All ranks are kept.
        activities.shrink_to_fit();
        let mut families: BTreeMap<(Class, NameId, bool), Family> = BTreeMap::new();
        for activity in &mut activities {
            let SampledActivity { class, name, phase, .. } = *activity;
            let of_optimizer = phase == Some(Phase::Optimizer);
            let name_of = || names.get(name).unwrap_or_default();
            let family = families.entry((class, name, of_optimizer));
            activity.family = *family.or_insert_with(|| class.family_in(name_of(), of_optimizer));
            activity.idle_before = idle.before(activity.start);
        }
        let next = window.map(|window| (window.end, idle.before(window.end)));
        Some(StepSample { step, activities, next })
    }
}

/// What a rank does in the window of a step that is not of that step: the end of the one before, mostly. Where it met others is
/// in their steps.
fn of_others(
    window: &StepWindow,
    (activities, communication): (&Activities, &[CommunicationSpan]),
) -> Vec<SampledActivity> {
    let clipped = |start: i64, end: i64| {
        let (start, end) = (start.max(window.start), end.min(window.end));
        (start < end).then(|| SampledActivity { end, ..SampledActivity::next_step(start, None) })
    };
    let other = |step: Option<Step>| step != Some(window.step);
    let begun = activities.items.iter().take_while(|activity| activity.start < window.end);
    let computed = begun.filter_map(|activity| {
        let place = activities.place(activity);
        let clipped = clipped(activity.start, activity.end)?;
        let kind = if place.class == Class::Copy { SpanKind::Copy } else { SpanKind::Kernel };
        let is_other = other(place.step) && place.class != Class::Communication;
        let (class, phase, name) = (place.class, place.phase, activity.name);
        is_other.then_some(SampledActivity { kind, class, phase, name, ..clipped })
    });
    let communicated = communication.iter().filter(|span| other(span.step)).filter_map(|span| {
        let (kind, class, phase, group) = (span.operation, Class::Communication, span.phase, span.group);
        Some(SampledActivity { kind, class, phase, group, ..clipped(span.start, span.end)? })
    });
    computed.chain(communicated).collect()
}
