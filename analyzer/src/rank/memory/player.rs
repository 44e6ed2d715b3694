//! Plays memory events, stretch by stretch, and remembers what stood out.

use std::collections::{BTreeMap, VecDeque};

use stepscope_traces::Step;

use super::{
    blocks::Blocks,
    reserved::ReservedTimeline,
    state::{AllocationPlace, AllocatorState, Event},
    stretch::Stretch,
    watch::Watch,
};

/// So many steps tell whether memory grows, however long the job is.
const MOST_STEPS: usize = 1 << 16;
/// Of how many steps it is remembered what was allocated at their end.
const MOST_ENDS: usize = 1024;

/// Plays events in the order of time, in one go or as they come.
#[derive(Clone, Default)]
pub(super) struct Player {
    pub(super) state: AllocatorState,
    pub(super) watch: Watch,
    /// What was allocated at the end of each of the last steps.
    pub(super) step_ends: VecDeque<u64>,
    /// The same of the last steps, by their numbers.
    pub(super) last_ends: BTreeMap<Step, u64>,
    /// When the first event happened.
    pub(super) began: Option<i64>,
    /// When the first step began, and when it had ended.
    pub(super) first_step_start: Option<i64>,
    pub(super) first_step_end: Option<i64>,
    pub(super) reserved: ReservedTimeline,
    /// What was live at the peak.
    pub(super) at_peak: Blocks,
    /// Where in time it is.
    pub(super) stretch: Stretch,
    played: usize,
}

impl Player {
    /// Plays events, which are sorted by time, and goes through the stretches that begin meanwhile and after.
    pub(super) fn play(&mut self, events: &[Event], stretches: &[Stretch], places: &[AllocationPlace]) {
        let (before, played_before) = (self.state.clone(), self.played);
        let peak_before = self.watch.peak().map(|peak| peak.after);
        self.began = self.began.or(events.first().map(|event| event.time));
        let mut coming = stretches.iter().peekable();
        for event in events {
            while let Some(next) = coming.next_if(|next| next.from <= event.time) {
                self.enter(next);
            }
            self.state.apply(event, places);
            self.played += 1;
            self.state.reserved.into_iter().for_each(|reserved| self.reserved.look(event.time, reserved));
            self.watch.look(self.played, event.time, self.stretch.step, event.place(places), &self.state);
        }
        coming.for_each(|next| self.enter(next));
        if let Some(after) = self.watch.peak().map(|peak| peak.after).filter(|after| Some(*after) != peak_before) {
            self.at_peak = Blocks::after(before, &events[..after - played_before], places);
        }
    }

    fn enter(&mut self, next: &Stretch) {
        if next.step.is_some() {
            self.first_step_start = self.first_step_start.or(Some(next.from));
        }
        if self.stretch.step.is_some() {
            self.first_step_end = self.first_step_end.or(Some(next.from));
        }
        if let Some(step) = self.stretch.step.filter(|_| self.played > 0) {
            self.step_ends.push_back(self.state.allocated);
            if self.step_ends.len() > MOST_STEPS {
                self.step_ends.pop_front();
            }
            self.last_ends.insert(step, self.state.allocated);
            if self.last_ends.len() > MOST_ENDS {
                self.last_ends.pop_first();
            }
        }
        self.stretch = *next;
        if self.played > 0 {
            self.watch.look(self.played, next.from, next.step, None, &self.state);
        }
    }
}
