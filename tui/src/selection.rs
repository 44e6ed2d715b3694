//! What is looked at: which moment of the run, which rank, which step.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use stepscope_analyzer::{Analysis, StepFigures, StepRange};
use stepscope_traces::{Nanos, Rank, RunSource, Step, Window};

use crate::{
    data::{Details, Scope, Snapshot, Stage},
    request::{ExportScope, Request, StepRequest},
    scene::Scene,
    theme::Theme,
    view::View,
};

/// What is known of a step may be recorded so long before it and after it: hosts run ahead of devices.
const LEAST_AROUND: i64 = 2 * Nanos::SECOND.0;

/// What is looked at.
pub(crate) struct DashboardSelection {
    pub(crate) theme: Theme,
    /// The newest there is, and what is shown: another one, when it is frozen.
    newest: Arc<Snapshot>,
    shown: Arc<Snapshot>,
    /// The same, with the figures of the chosen step where those are known.
    seen: Arc<Snapshot>,
    pub(crate) is_frozen: bool,
    /// What views asked for, as far as it is read.
    pub(crate) details: Details,
    /// The rank that every view is about.
    focus: Option<Rank>,
    /// The step that is chosen.
    chosen: Option<Step>,
    /// What was asked for last, and what came.
    asked: Option<Step>,
    known: Option<(Step, Result<Arc<Analysis>, String>)>,
}

impl DashboardSelection {
    pub(crate) fn new(theme: Theme) -> DashboardSelection {
        let nothing = Arc::new(Snapshot::at(Stage::Reading { done: 0, all: 0 }));
        DashboardSelection {
            theme,
            newest: nothing.clone(),
            shown: nothing.clone(),
            seen: nothing,
            is_frozen: false,
            details: Details::default(),
            focus: None,
            chosen: None,
            asked: None,
            known: None,
        }
    }

    /// What there is to draw, at a time of day.
    pub(crate) fn scene(&self, now: Nanos) -> Scene<'_> {
        Scene {
            snapshot: &self.seen,
            in_scope: self.shown.analysis.as_deref(),
            details: &self.details,
            theme: &self.theme,
            focus: self.focus,
            chosen: self.chosen,
            awaits: self.awaits(),
            now,
        }
    }

    /// Where the run is, once there is one.
    pub(crate) fn run_path(&self) -> Option<&Path> {
        self.newest.run.as_ref().map(|run| run.path.as_path())
    }

    /// The view that suits the run: of memory alone, that of memory.
    pub(crate) fn opening_view(&self) -> View {
        let source = self.newest.run.as_ref().map(|run| run.source);
        if source == Some(RunSource::TorchSnapshot) { View::Memory } else { View::Overview }
    }

    /// Takes in what is new of the run; it is shown unless something else is held.
    pub(crate) fn take(&mut self, snapshot: Arc<Snapshot>) {
        self.newest = snapshot;
        if !self.is_frozen {
            self.show_newest();
        }
    }

    /// Takes in the figures of a step.
    pub(crate) fn take_step(&mut self, step: Step, figures: Result<Arc<Analysis>, String>) {
        self.known = Some((step, figures));
        self.see();
    }

    /// Holds what is shown, or follows again.
    pub(crate) fn freeze(&mut self) {
        self.is_frozen = !self.is_frozen;
        if !self.is_frozen {
            self.show_newest();
        }
    }

    fn show_newest(&mut self) {
        self.shown = self.newest.clone();
        let ranks = self.shown.run.as_ref().map_or(&[][..], |run| &run.ranks);
        self.focus = self.focus.filter(|focus| ranks.contains(focus));
        self.see();
    }

    fn see(&mut self) {
        self.seen = match &self.known {
            Some((step, Ok(analysis))) if self.chosen == Some(*step) => {
                Arc::new(Snapshot { analysis: Some(analysis.clone()), scope: Scope::Chosen, ..(*self.shown).clone() })
            }
            _ => self.shown.clone(),
        };
    }

    /// The chosen step, while its figures are on their way.
    fn awaits(&self) -> Option<Step> {
        self.chosen.filter(|chosen| self.asked == Some(*chosen) && !self.knows(*chosen))
    }

    fn knows(&self, step: Step) -> bool {
        self.known.as_ref().is_some_and(|(known, _)| *known == step)
    }

    /// Chooses a step, or none: then the newest are looked at. Asks for its figures, if they are not there.
    pub(crate) fn choose(&mut self, step: Option<Step>) -> Option<Request> {
        self.chosen = step;
        self.see();
        let step = step.filter(|step| self.asked != Some(*step) || !self.knows(*step))?;
        self.asked = Some(step);
        Some(Request::Step(StepRequest { step, windows: self.around(step) }))
    }

    /// Where a step lies on each rank, as far as that is known, and some time around it.
    fn around(&self, step: Step) -> BTreeMap<Rank, Window> {
        let steps = self.shown.analysis.as_ref().map_or(&[][..], |analysis| &analysis.steps);
        let window = |figures: &StepFigures| {
            let around = figures.duration_ns.saturating_mul(2).max(LEAST_AROUND);
            let from = figures.start_ns.saturating_sub(around);
            let to = figures.start_ns.saturating_add(figures.duration_ns).saturating_add(around);
            (figures.rank, Window { from: Nanos(from), to: Nanos(to) })
        };
        steps.iter().filter(|figures| figures.step == step).map(window).collect()
    }

    /// Chooses the step so many places on from the chosen one; past the last, none.
    pub(crate) fn choose_step(&mut self, places: isize) -> Option<Request> {
        let steps = &self.shown.steps;
        let at = match self.chosen {
            Some(chosen) => steps.partition_point(|step| step.step < chosen),
            None => steps.len(),
        };
        let next = steps.get(at.saturating_add_signed(places)).map(|step| step.step);
        self.choose(next)
    }

    /// Chooses the first step.
    pub(crate) fn choose_first_step(&mut self) -> Option<Request> {
        let first = self.shown.steps.first().map(|step| step.step);
        self.choose(first)
    }

    /// Looks at one rank, or at all of them.
    pub(crate) fn look_at(&mut self, rank: Option<Rank>) {
        self.focus = rank;
    }

    /// Focuses on the rank so many places on, from all ranks around to all ranks.
    pub(crate) fn choose_rank(&mut self, places: isize) {
        let ranks = self.shown.run.as_ref().map_or(&[][..], |run| &run.ranks);
        // All ranks come before the first one.
        let at = self.focus.and_then(|focus| ranks.iter().position(|rank| *rank == focus)).map_or(0, |at| at + 1);
        let next = (at as isize + places).rem_euclid(ranks.len() as isize + 1) as usize;
        self.focus = next.checked_sub(1).and_then(|index| ranks.get(index)).copied();
    }

    /// What is seen, for somebody who looks at it elsewhere: the steps that figures are of; nothing where there are no figures.
    pub(crate) fn what_is_seen(&self) -> Option<Request> {
        self.seen.analysis.as_ref()?;
        let time = self.seen.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
        let steps = match (self.seen.scope, time) {
            (Scope::Recent | Scope::Chosen, Some(time)) => {
                StepRange { from: Some(time.first_step), to: Some(Step(time.last_step.0.saturating_add(1))) }
            }
            _ => StepRange::ALL,
        };
        Some(Request::Export(ExportScope { steps, ranks: self.focus.into_iter().collect() }))
    }
}
