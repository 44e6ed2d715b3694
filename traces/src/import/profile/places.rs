//! Where in the training a thread was at a time.
//!
//! What annotations say is taken as it is. Where they say nothing of the phase, it is inferred from how PyTorch trains:
//!
//! - What autograd's threads launch belongs to the backward pass. Their micro-batch is that of the main thread, which
//!   waits for them.
//! - What the main thread launches before autograd's last launch of a step belongs to a forward pass, and what comes
//!   between that and the optimizer to the optimizer: clipping, for example.
//!
//! The main thread is the one that says most of steps and optimizers. A step's passes end where an optimizer begins, or
//! without any where the step ends. What an optimizer does before the backward pass of its step, such as
//! `zero_grad`, ends none.

use std::mem;

use hashbrown::{HashMap, HashSet};

use super::annotation::TrainingContext;
use crate::{ids::Nanos, vocabulary::Phase};

/// A range that a program named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Annotated {
    pub(crate) thread: Option<u32>,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) place: TrainingContext,
}

/// Where each thread was, and when.
#[derive(Debug, Default)]
pub(crate) struct Places {
    threads: HashMap<Option<u32>, Timeline>,
    /// Steps, whichever thread said so: other threads work for the same one.
    steps: Timeline,
    main: Option<u32>,
    autograd: HashSet<u32>,
    /// Where the passes of each step end, and autograd's last launch in them.
    passes: Vec<(Nanos, Option<Nanos>)>,
}

impl Places {
    /// Brings annotations together with autograd: which threads are its own, and when it launched something.
    pub(crate) fn of(
        annotations: &[Annotated],
        autograd: HashSet<u32>,
        launches: impl Iterator<Item = Nanos>,
    ) -> Places {
        let mut by_thread: HashMap<Option<u32>, Vec<Annotated>> = HashMap::new();
        for annotation in annotations {
            by_thread.entry(annotation.thread).or_default().push(*annotation);
        }
        let leads = |annotations: &[Annotated]| {
            let says = |place: TrainingContext| place.step.is_some() || place.phase == Some(Phase::Optimizer);
            annotations.iter().filter(|annotation| says(annotation.place)).count()
        };
        // Of threads that say as much the one with the lowest number, so that the answer is always the same.
        let candidates = by_thread.iter().filter_map(|(thread, own)| Some((leads(own), std::cmp::Reverse((*thread)?))));
        let main = candidates.filter(|(says, _)| *says > 0).max().map(|(_, thread)| thread.0);
        let steps = annotations.iter().filter(|annotation| annotation.place.step.is_some()).copied();
        let mut passes = ends_of_passes(annotations, main);
        for time in launches {
            let pass = passes.partition_point(|(end, _)| *end <= time);
            if let Some((_, last)) = passes.get_mut(pass) {
                *last = (*last).max(Some(time));
            }
        }
        Places {
            steps: Timeline::of(steps.collect()),
            threads: by_thread.into_iter().map(|(thread, own)| (thread, Timeline::of(own))).collect(),
            main,
            autograd,
            passes,
        }
    }

    /// Where a thread was at a time, and from when until when it was there.
    fn around(&self, thread: Option<u32>, time: Nanos) -> Stay {
        let of_thread = |thread| self.threads.get(&thread).map_or(Stay::ALWAYS, |timeline| timeline.around(time));
        let step = self.steps.around(time);
        let mut around = of_thread(thread).meet(&step);
        around.place = around.place.within(TrainingContext { step: step.place.step, ..TrainingContext::NOWHERE });
        if thread.is_some_and(|thread| self.autograd.contains(&thread)) {
            // The main thread waits in the backward pass, whatever else it is in around that.
            let main = self.main.map_or(Stay::ALWAYS, |main| of_thread(Some(main)));
            let waits = TrainingContext { step: None, phase: Some(Phase::Backward), ..main.place };
            around = around.meet(&main);
            around.place = around.place.within(waits);
        } else if around.place.phase.is_none() && self.main.is_some() && thread == self.main {
            let phase = self.phase_of_main(time);
            around = around.meet(&phase);
            around.place.phase = phase.place.phase;
        }
        around
    }

    fn phase_of_main(&self, time: Nanos) -> Stay {
        let pass = self.passes.partition_point(|(end, _)| *end <= time);
        let from = pass.checked_sub(1).map_or(Stay::ALWAYS.from, |before| self.passes[before].0);
        let (until, last_backward) = self.passes.get(pass).copied().unwrap_or((Stay::ALWAYS.until, None));
        let step_at = |time: Nanos| self.steps.around(time).place.step;
        let is_of_step = |end: Nanos| step_at(Nanos(end.0.saturating_sub(1))) == step_at(time);
        let next = || self.passes.get(pass + 1).filter(|(end, _)| is_of_step(*end));
        let last_backward = last_backward.or_else(|| next()?.1);
        let (from, until, phase) = match last_backward {
            Some(last) if time < last => (from, until.min(last), Some(Phase::Forward)),
            Some(last) => (from.max(last), until, Some(Phase::Optimizer)),
            None => (from, until, None),
        };
        Stay { from, until, place: TrainingContext { phase, ..TrainingContext::NOWHERE } }
    }
}

/// Finds places one after the other. What is asked for next is mostly where the last one of its thread was.
pub(crate) struct PlaceFinder<'a> {
    places: &'a Places,
    /// Which thread was asked for last, and where it was.
    last: (Option<u32>, Stay),
    /// Where the others were.
    others: HashMap<Option<u32>, Stay>,
}

impl PlaceFinder<'_> {
    pub(crate) fn new(places: &Places) -> PlaceFinder<'_> {
        PlaceFinder { places, last: (None, Stay::NEVER), others: HashMap::new() }
    }

    /// Where a thread was at a time.
    pub(crate) fn at(&mut self, thread: Option<u32>, time: Nanos) -> TrainingContext {
        if self.last.0 != thread {
            let stay = self.others.get(&thread).copied().unwrap_or(Stay::NEVER);
            let (other, left) = mem::replace(&mut self.last, (thread, stay));
            self.others.insert(other, left);
        }
        let (_, stay) = &mut self.last;
        if !(stay.from..stay.until).contains(&time) {
            *stay = self.places.around(thread, time);
        }
        stay.place
    }
}

/// A stay at a place, from when until when.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: Nanos,
    until: Nanos,
    place: TrainingContext,
}

impl Stay {
    /// Nowhere, at any time.
    const ALWAYS: Stay = Stay { from: Nanos(i64::MIN), until: Nanos(i64::MAX), place: TrainingContext::NOWHERE };
    /// Nowhere, at no time.
    const NEVER: Stay = Stay { until: Nanos(i64::MIN), ..Stay::ALWAYS };

    /// The part of it that lies in another one.
    fn meet(&self, other: &Stay) -> Stay {
        Stay { from: self.from.max(other.from), until: self.until.min(other.until), place: self.place }
    }
}

/// Where the passes of each step end on the main thread.
fn ends_of_passes(annotations: &[Annotated], main: Option<u32>) -> Vec<(Nanos, Option<Nanos>)> {
    let own = || annotations.iter().filter(|annotation| main.is_some() && annotation.thread == main);
    let optimizers = own().filter(|annotation| annotation.place.phase == Some(Phase::Optimizer));
    let mut ends: Vec<Nanos> = optimizers.map(|annotation| annotation.start).collect();
    if ends.is_empty() {
        ends.extend(own().filter(|annotation| annotation.place.step.is_some()).map(|annotation| annotation.end));
    }
    ends.sort_unstable();
    ends.into_iter().map(|end| (end, None)).collect()
}

/// Where one thread was: each place, from when on.
#[derive(Debug, Default)]
struct Timeline(Vec<(Nanos, TrainingContext)>);

impl Timeline {
    /// Inner annotations say more than outer ones. What leaves the one it began in is cut there.
    fn of(mut annotations: Vec<Annotated>) -> Timeline {
        annotations.sort_by_key(|annotation| (annotation.start, std::cmp::Reverse(annotation.end)));
        let mut timeline = Timeline::default();
        // What is open, the innermost last: until when, and where that is.
        let mut open: Vec<(Nanos, TrainingContext)> = Vec::new();
        for annotation in annotations {
            timeline.close(&mut open, annotation.start);
            let (end, outer) = open.last().copied().unwrap_or((Nanos(i64::MAX), TrainingContext::NOWHERE));
            let place = annotation.place.within(outer);
            open.push((annotation.end.min(end), place));
            timeline.0.push((annotation.start, place));
        }
        timeline.close(&mut open, Nanos(i64::MAX));
        timeline
    }

    /// Closes what ends until a time.
    fn close(&mut self, open: &mut Vec<(Nanos, TrainingContext)>, until: Nanos) {
        while let Some((end, _)) = open.pop_if(|(end, _)| *end <= until) {
            self.0.push((end, open.last().map_or(TrainingContext::NOWHERE, |(_, place)| *place)));
        }
    }

    fn around(&self, time: Nanos) -> Stay {
        let after = self.0.partition_point(|(from, _)| *from <= time);
        let until = self.0.get(after).map_or(Stay::ALWAYS.until, |(from, _)| *from);
        let before = after.checked_sub(1).map(|index| self.0[index]);
        before.map_or(Stay { until, ..Stay::ALWAYS }, |(from, place)| Stay { from, until, place })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{MicroBatch, Step};

    const MAIN: Option<u32> = Some(1);
    const AUTOGRAD: Option<u32> = Some(2);

    fn annotated(name: &str, start: i64, end: i64) -> Annotated {
        Annotated { thread: MAIN, start: Nanos(start), end: Nanos(end), place: TrainingContext::named(name) }
    }

    fn places(annotations: &[Annotated], backward: &[i64]) -> Places {
        Places::of(annotations, HashSet::from([2]), backward.iter().map(|time| Nanos(*time)))
    }

    #[test]
    fn a_step_by_hand() {
        let annotations = [
            annotated("ProfilerStep#4", 0, 100),
            annotated("DistributedDataParallel.forward", 10, 30),
            annotated("Optimizer.step#AdamW.step", 80, 90),
            annotated("ProfilerStep#5", 100, 200),
        ];
        let places = places(&annotations, &[50, 60]);
        let at = |thread, time| {
            let place = PlaceFinder::new(&places).at(thread, Nanos(time));
            (place.step.map(|step| step.0), place.phase)
        };
        assert_eq!(at(MAIN, -1), (None, Some(Phase::Forward)), "before the first step, and before its passes end");
        assert_eq!(at(MAIN, 10), (Some(4), Some(Phase::Forward)), "as annotated");
        assert_eq!(at(MAIN, 40), (Some(4), Some(Phase::Forward)), "the loss");
        assert_eq!(at(AUTOGRAD, 50), (Some(4), Some(Phase::Backward)));
        assert_eq!(at(MAIN, 70), (Some(4), Some(Phase::Optimizer)), "clipping");
        assert_eq!(at(MAIN, 80), (Some(4), Some(Phase::Optimizer)), "as annotated");
        assert_eq!(at(MAIN, 150), (Some(5), None), "nothing tells that this step trains");
        assert_eq!(at(Some(3), 50), (Some(4), None), "some other thread");
        assert_eq!(at(None, 50), (Some(4), None));
        assert_eq!(at(MAIN, 200), (None, None));
    }

    #[test]
    fn gradients_that_are_cleared_between_the_passes_end_none() {
        let annotations = [
            annotated("ProfilerStep#3", -20, 0),
            annotated("ProfilerStep#4", 0, 100),
            annotated("Optimizer.zero_grad#SGD.zero_grad", 40, 45),
            annotated("Optimizer.step#SGD.step", 80, 90),
        ];
        let places = places(&annotations, &[50, 60]);
        let phases = [10, 40, 48, 70, 80].map(|time| PlaceFinder::new(&places).at(MAIN, Nanos(time)).phase);
        let (forward, optimizer) = (Some(Phase::Forward), Some(Phase::Optimizer));
        assert_eq!(phases, [forward, optimizer, forward, optimizer, optimizer]);
        // A step before it may be an evaluation.
        assert_eq!(PlaceFinder::new(&places).at(MAIN, Nanos(-10)).phase, None);
    }

    #[test]
    fn micro_batches_of_a_pipeline_are_those_of_the_main_thread() {
        let annotations = [
            annotated("ProfilerStep#0", 0, 100),
            annotated("Forward 0", 10, 20),
            annotated("Forward 1", 20, 30),
            annotated("Backward 0", 40, 50),
            annotated("Backward 1", 50, 60),
        ];
        let places = places(&annotations, &[45, 55]);
        let at = |thread, time| {
            let TrainingContext { phase, micro_batch, .. } = PlaceFinder::new(&places).at(thread, Nanos(time));
            (phase, micro_batch)
        };
        assert_eq!(at(MAIN, 25), (Some(Phase::Forward), Some(MicroBatch(1))));
        assert_eq!(at(AUTOGRAD, 45), (Some(Phase::Backward), Some(MicroBatch(0))));
        assert_eq!(at(AUTOGRAD, 55), (Some(Phase::Backward), Some(MicroBatch(1))));
        assert_eq!(at(MAIN, 56), (Some(Phase::Backward), Some(MicroBatch(1))));
        assert_eq!(at(MAIN, 70), (Some(Phase::Optimizer), None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Properly nested or not, the step at a time is one that lies around it.
        #[test]
        fn steps_lie_around_what_is_in_them(
            intervals in prop::collection::vec((0..40_i64, 0..20_i64), 0..8), time in 0..60_i64,
        ) {
            let annotations: Vec<Annotated> = intervals.iter().zip(0..).map(|(&(start, length), step)| Annotated {
                thread: MAIN,
                start: Nanos(start),
                end: Nanos(start + length),
                place: TrainingContext { step: Some(Step(step)), ..TrainingContext::NOWHERE },
            }).collect();
            let found = Timeline::of(annotations).around(Nanos(time)).place.step;
            if let Some(step) = found {
                let (start, length) = intervals[step.0 as usize];
                prop_assert!((start..start + length).contains(&time));
            }
        }

        /// What was found before says nothing else than what is found anew.
        #[test]
        fn remembered_places_are_right(
            said in prop::collection::vec((0..3_u32, 0..40_i64, 1..20_i64, 0..4_usize), 0..12),
            backward in prop::collection::vec(0..60_i64, 0..6),
            asked in prop::collection::vec((0..4_u32, -5..70_i64), 1..40),
        ) {
            let names = ["ProfilerStep#4", "Forward 1", "Optimizer.step#AdamW.step", "Backward 0"];
            let annotations: Vec<Annotated> = said.iter().map(|&(thread, start, length, name)| {
                Annotated { thread: Some(thread), ..annotated(names[name], start, start + length) }
            }).collect();
            let places = places(&annotations, &backward);
            let mut finder = PlaceFinder::new(&places);
            for (thread, time) in asked {
                let (thread, time) = (Some(thread), Nanos(time));
                prop_assert_eq!(finder.at(thread, time), PlaceFinder::new(&places).at(thread, time));
            }
        }
    }
}
