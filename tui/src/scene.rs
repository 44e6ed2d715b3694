//! What a view draws: a snapshot, and what of it is chosen.

use std::borrow::Cow;

use stepscope_analyzer::{Analysis, Partition, RankMemory, RunLayout, StepFigures, StepSummary};
use stepscope_traces::{Nanos, Rank, Step};

use crate::{
    data::{Details, Scope, Snapshot},
    theme::Theme,
};

/// What a view draws.
pub(crate) struct Scene<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The analysis of all steps in scope, whichever is chosen.
    pub(crate) in_scope: Option<&'a Analysis>,
    /// What views asked for, as far as it is read.
    pub(crate) details: &'a Details,
    pub(crate) theme: &'a Theme,
    /// The rank that every view is about; all of them, if there is none.
    pub(crate) focus: Option<Rank>,
    /// The step that is chosen; the newest, if there is none.
    pub(crate) chosen: Option<Step>,
    /// That step, while its figures are on their way: until then those of the others are shown.
    pub(crate) awaits: Option<Step>,
    /// The time of day.
    pub(crate) now: Nanos,
}

impl<'a> Scene<'a> {
    /// Every step in scope on every rank, in order.
    pub(crate) fn figures(&self) -> &'a [StepFigures] {
        self.snapshot.analysis.as_ref().map_or(&[][..], |analysis| &analysis.steps)
    }

    /// How the run is spread over ranks: as it says itself, or as its analysis tells.
    pub(crate) fn layout(&self) -> Option<RunLayout> {
        let said = self.snapshot.run.as_ref().and_then(|run| run.layout).map(RunLayout::from);
        said.or_else(|| self.snapshot.analysis.as_ref().and_then(|analysis| analysis.run.layout))
    }

    /// One of them on every rank.
    pub(crate) fn on_ranks(&self, step: Step) -> &'a [StepFigures] {
        let steps = self.figures();
        let from = steps.partition_point(|other| other.step < step);
        &steps[from..from + steps[from..].partition_point(|other| other.step == step)]
    }

    /// The step that is looked at on every rank: the chosen one, if it is in scope, or the last whole one that is.
    pub(crate) fn step_in_sight(&self) -> &'a [StepFigures] {
        let chosen = self.chosen.map(|chosen| self.on_ranks(chosen)).filter(|chosen| !chosen.is_empty());
        let figures = self.figures();
        let last = figures.iter().rfind(|step| !self.is_cut_off(step.step)).or(figures.last());
        chosen.or(last.map(|last| self.on_ranks(last.step))).unwrap_or_default()
    }

    /// Whether a step was not recorded to its end.
    pub(crate) fn is_cut_off(&self, step: Step) -> bool {
        self.in_scope.is_some_and(|analysis| analysis.window.cut_off.contains(&step))
    }

    /// The steps of what is in focus: every step of the job, or those of one rank that are in scope.
    pub(crate) fn steps(&self) -> Cow<'_, [StepSummary]> {
        match (self.focus, self.in_scope) {
            (None, _) => Cow::Borrowed(&self.snapshot.steps),
            (Some(_), None) => Cow::Borrowed(&[]),
            (Some(rank), Some(analysis)) => {
                analysis.steps.iter().filter(|step| step.rank == rank).map(StepSummary::of).collect()
            }
        }
    }

    /// Every step of the job up to the chosen one.
    pub(crate) fn steps_so_far(&self) -> &[StepSummary] {
        let steps = &self.snapshot.steps;
        &steps[..self.chosen.map_or(steps.len(), |chosen| steps.partition_point(|step| step.step <= chosen))]
    }

    /// Where the time of what is in focus goes, in the steps that count; nothing where no time is known.
    pub(crate) fn time(&self) -> Option<Partition> {
        let ranks = self.snapshot.analysis.as_ref()?.counted.iter();
        let in_focus = ranks.filter(|time| self.focus.is_none_or(|focus| focus == time.rank));
        let time = Partition::sum(in_focus.map(|time| &time.partition));
        (time.span_ns > 0).then_some(time)
    }

    /// The memory of the rank in focus; without one, of the rank that is fullest.
    pub(crate) fn memory(&self) -> Option<&RankMemory> {
        let memory = self.snapshot.memory.iter().map(|memory| &**memory);
        match self.focus {
            Some(rank) => memory.into_iter().find(|memory| memory.rank == rank),
            None => RankMemory::fullest(memory),
        }
    }

    /// What a device has of memory, if that is known.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.snapshot.run.as_ref()?.device.as_ref()?.memory_bytes
    }

    /// Which steps figures are of, in words.
    pub(crate) fn scope(&self) -> String {
        let time = self.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
        match (time, self.snapshot.scope) {
            (Some(time), _) if time.count == 1 => format!("step {}", time.first_step),
            (Some(time), _) => format!("steps {} to {}", time.first_step, time.last_step),
            (None, Scope::Recent) => "the newest spans".into(),
            (None, Scope::Whole | Scope::Chosen) => "the whole recording".into(),
        }
    }
}
