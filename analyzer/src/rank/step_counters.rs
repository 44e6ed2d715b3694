//! What a rank counted for each step.

use std::collections::BTreeMap;

use stepscope_traces::{
    Counter, CounterSamples, EVALUATION_LOSS, NOISE_SCALE, Names, Phase, REPLICA_TOKENS, SpanKind, Spans, Step,
};

use crate::{
    rank::{host::HostStep, recorded_windows::RecordedWindows, step_windows::StepWindow},
    stored::fields,
};

/// What was counted for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepCounters {
    pub(crate) loss: Option<f64>,
    /// The loss on data that is not trained on.
    pub(crate) evaluation_loss: Option<f64>,
    /// The gradient noise scale, in tokens.
    pub(crate) noise_scale: Option<f64>,
    /// Tokens of the whole job.
    pub(crate) tokens: Option<f64>,
    /// Tokens of the replica of the model that the rank is a part of.
    pub(crate) replica_tokens: Option<f64>,
    /// Whether it was recorded from its beginning to its end.
    pub(crate) is_complete: bool,
    /// What it includes besides training.
    pub(crate) besides: Besides,
    /// How long it is on the host, if an annotation says so.
    pub(crate) host: Option<HostStep>,
}

fields!(StepCounters { loss, evaluation_loss, noise_scale, tokens, replica_tokens, is_complete, besides, host });

/// What a step includes besides training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Besides {
    evaluation: bool,
    checkpoint: bool,
}

fields!(Besides { evaluation, checkpoint });

impl Besides {
    /// What some spans say that steps include, by the phases that they annotate.
    pub(crate) fn add_all(of_steps: &mut BTreeMap<Step, Besides>, spans: &Spans) {
        for row in (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Phase) {
            let (Some(step), Some(phase)) = (spans.step.get(row), spans.phase.get(row)) else { continue };
            match phase {
                Phase::Evaluation => of_steps.entry(step).or_default().evaluation = true,
                Phase::Checkpoint => of_steps.entry(step).or_default().checkpoint = true,
                _ => {}
            }
        }
    }

    /// Its phases.
    pub(crate) fn phases(self) -> Vec<Phase> {
        let phases = [(self.evaluation, Phase::Evaluation), (self.checkpoint, Phase::Checkpoint)];
        phases.into_iter().filter(|(is_there, _)| *is_there).map(|(_, phase)| phase).collect()
    }
}

impl StepCounters {
    /// What was counted for each step. A value that was counted inside the annotation of a step is that step's: the host
    /// runs ahead of the device. Tokens inside of it add up, as those of micro-batches do. Any other value is of the step in
    /// whose window on the device it lies, where the first one is the step's own. The annotation of a step is recorded when it ends: where there are any, a step without one was cut off, and what was counted is of more than is there. So
    /// was one whose annotation reaches out of the windows in which the rank was recorded, and where there are no
    /// annotations the first and the last of each of several windows. Without annotations nobody knows in which step a backward
    /// pass is, as the host runs ahead: then each step has as many as there are in the mean, with the usual tokens.
    pub(super) fn of(
        steps: &[StepWindow],
        annotated: &[StepWindow],
        besides: &BTreeMap<Step, Besides>,
        recorded: &RecordedWindows,
        extents: &[(i64, i64)],
        samples: &CounterSamples,
        names: &Names,
    ) -> Vec<StepCounters> {
        let mut is_whole: BTreeMap<Step, bool> = BTreeMap::new();
        for window in annotated {
            *is_whole.entry(window.step).or_insert(true) &= recorded.have_all_of(window);
        }
        let extent = |step: &StepWindow| extents.iter().position(|(from, to)| *from <= step.start && step.start <= *to);
        let is_at_an_edge = |index: usize| {
            let of = |index: usize| steps.get(index).and_then(extent);
            extents.len() > 1 && (index == 0 || of(index - 1) != of(index) || of(index + 1) != of(index))
        };
        let is_complete = |(index, step): (usize, &StepWindow)| match is_whole.is_empty() {
            true => !is_at_an_edge(index),
            false => is_whole.get(&step.step).copied().unwrap_or(false),
        };
        let of = |step: (usize, &StepWindow)| StepCounters {
            is_complete: is_complete(step),
            besides: besides.get(&step.1.step).copied().unwrap_or_default(),
            ..StepCounters::default()
        };
        let mut counters: Vec<StepCounters> = steps.iter().enumerate().map(of).collect();
        let annotations = Annotations::of(steps, annotated);
        let mut passes: Vec<f64> = Vec::new();
        let named = |name: &str| names.iter().find(|(_, other)| *other == name).map(|(id, _)| id.0);
        let [counted_here, evaluation_loss, noise_scale] = [REPLICA_TOKENS, EVALUATION_LOSS, NOISE_SCALE].map(named);
        for sample in samples.rows() {
            let is_loss = sample.counter == Counter::Loss.id();
            let is = |counter: Option<u32>| Some(u32::from(sample.counter.0)) == counter;
            let (is_replica, is_other) = (is(counted_here), is(evaluation_loss) || is(noise_scale));
            if !is_loss && !is_replica && !is_other && sample.counter != Counter::Tokens.id() {
                continue;
            }
            if is_replica && annotated.is_empty() {
                passes.push(sample.value);
                continue;
            }
            let time = sample.time_ns.0;
            let on_device = || steps.partition_point(|step| step.start <= time).checked_sub(1);
            let on_host = annotations.step_at(time);
            let Some(step) = on_host.or_else(on_device) else { continue };
            let counted = &mut counters[step];
            if is_loss {
                counted.loss.get_or_insert(sample.value);
            } else if is_other {
                let of = if is(noise_scale) { &mut counted.noise_scale } else { &mut counted.evaluation_loss };
                *of = Some(sample.value);
            } else if counted.is_complete {
                let tokens = if is_replica { &mut counted.replica_tokens } else { &mut counted.tokens };
                match (&tokens, on_host) {
                    (Some(_), None) => {}
                    (before, _) => *tokens = Some(before.unwrap_or(0.0) + sample.value),
                }
            }
        }
        let of_each = tokens_of_passes(passes, steps.len());
        for counted in counters.iter_mut().filter(|counted| counted.is_complete) {
            counted.replica_tokens = counted.replica_tokens.or(of_each);
        }
        counters
    }
}

/// The tokens of a step, by those of all backward passes.
fn tokens_of_passes(mut passes: Vec<f64>, steps: usize) -> Option<f64> {
    passes.sort_by(f64::total_cmp);
    let usual = passes.get(passes.len() / 2)?;
    Some(usual * (passes.len() as f64 / steps.max(1) as f64).round().max(1.0))
}

/// Which step the host was in.
struct Annotations {
    /// When each begins and ends, and the place of its step.
    windows: Vec<(i64, i64, usize)>,
}

impl Annotations {
    fn of(steps: &[StepWindow], annotated: &[StepWindow]) -> Annotations {
        let places: BTreeMap<Step, usize> = steps.iter().enumerate().map(|(place, step)| (step.step, place)).collect();
        let window = |window: &StepWindow| Some((window.start, window.end, *places.get(&window.step)?));
        let mut windows: Vec<_> = annotated.iter().filter_map(window).collect();
        windows.sort_unstable();
        Annotations { windows }
    }

    fn step_at(&self, time: i64) -> Option<usize> {
        let begun = self.windows.partition_point(|(start, ..)| *start <= time);
        let (_, end, place) = self.windows[..begun].last()?;
        (time <= *end).then_some(*place)
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{CounterSample, Nanos};

    use super::*;

    #[test]
    fn tokens_of_steps_that_nobody_named_are_those_of_their_passes() {
        assert_eq!(tokens_of_passes(Vec::new(), 3), None);
        assert_eq!(tokens_of_passes(vec![8.0; 12], 12), Some(8.0));
        assert_eq!(tokens_of_passes(vec![8.0; 47], 12), Some(32.0), "one is cut off");
        assert_eq!(tokens_of_passes(vec![8.0, 2.0, 8.0], 4), Some(8.0));
    }

    #[test]
    fn what_is_counted_inside_an_annotation_is_that_steps_however_late_the_device_is() {
        let window = |step, start, end| StepWindow { step: Step(step), start, end };
        let on_host = [window(1, 10, 19), window(0, 0, 9)];
        let on_device = [window(0, 5, 105), window(1, 105, 205)];
        let tokens = |time, value| CounterSample { time_ns: Nanos(time), counter: Counter::Tokens.id(), value };
        let counted = |samples: &[CounterSample]| {
            let recorded = RecordedWindows::default();
            let mut table = CounterSamples::default();
            samples.iter().for_each(|sample| table.push(sample));
            let counters = StepCounters::of(
                &on_device,
                &on_host,
                &BTreeMap::new(),
                &recorded,
                &[(0, 205)],
                &table,
                &Names::default(),
            );
            counters.iter().map(|step| step.tokens).collect::<Vec<_>>()
        };
        assert_eq!(counted(&[tokens(8, 1.0), tokens(18, 2.0)]), [Some(1.0), Some(2.0)]);
        assert_eq!(counted(&[tokens(1, 1.0), tokens(8, 4.0)]), [Some(5.0), None], "micro-batches add up");
        assert_eq!(counted(&[tokens(30, 1.0), tokens(31, 2.0)]), [Some(1.0), None], "and elsewhere do not");
        assert_eq!(counted(&[tokens(30, 1.0), tokens(120, 2.0)]), [Some(1.0), Some(2.0)], "elsewhere by the device");
    }
}
