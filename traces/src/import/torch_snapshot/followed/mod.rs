//! A history that is followed while a program runs: snapshots taken one after another, and what the program is known to do
//! meanwhile.
//!
//! PyTorch keeps the newest events of its allocator. Snapshots that come often enough overlap, so that together they are
//! the whole history (`overlap`); where they do not, what changed unseen is told at once (a *gap*). Such a history has no
//! stacks. Instead it is known which pass of the training the program is in at each time (`marks`, and `forward` for what
//! they leave open), and at some times which blocks are parameters, gradients and optimizer state (`observed`). The rest is
//! inferred by the rules for snapshots (`category`).
//!
//! What a block is for often shows only when it is given back: a batch when the next one takes its place. So events wait
//! until the step after theirs is over; what was told then (`shown`) stays as it is.

mod forward;
mod marks;
mod observed;
mod overlap;
mod shown;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::{
    clock::ClockSnapshot, error::PickleError, notes::OutOfMemory, tables::MemoryEvent, vocabulary::MemoryCategory,
};

use super::{
    annotations::phase,
    calls::Calls,
    category::Rules,
    document::{DeviceHistory, Document, EndState, NoDocument},
    frame::Pass,
    lives::{Life, Lives},
    out_of_memory,
    passes::Passes,
    ranges::{Ranges, range_change},
    records::{Action, Block, Event},
    tables::event_phase,
};
use forward::HistoryEnding;
use marks::Marks;
use observed::{Lived, Observed};
use overlap::Tail;
use shown::{Moment, Shown};

pub use marks::{Mark, TrainingEvent};
pub use observed::Observation;

/// No more events wait for the end of a step.
const MOST_WAITING: usize = 500_000;

/// Why what a program said is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It is a pickle that cannot be read.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// It is something else.
    #[error("it is {0}")]
    SomethingElse(String),
    /// It ends too early.
    #[error("it was cut off")]
    CutShort,
}

/// The memory of one device, followed.
#[derive(Default)]
pub struct FollowedMemory {
    device: Option<u32>,
    marks: Marks,
    observed: Observed,
    /// The end of what was taken last; none before the first snapshot and after a break.
    tail: Option<Tail>,
    /// Events that are not told yet, and when each was on the rank's clock, in order.
    waiting: Vec<Event>,
    times: Vec<i64>,
    /// Blocks that were there when the history began, or after a gap, and are not told yet.
    from_before: Vec<(u64, Block)>,
    /// When that was.
    began: i64,
    latest: i64,
    shown: Shown,
    /// Whether the training has begun, before which parameters are made.
    is_training: bool,
    /// Where memory ran out last.
    shortage: Option<OutOfMemory>,
}

/// What a snapshot brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Events that were new.
    pub new: usize,
    /// Events that it had.
    pub all: usize,
    /// Whether events since the one before it are lost.
    pub gap: bool,
    /// The other devices that have events.
    pub other_devices: usize,
    /// Whether memory ran out since the one before it.
    pub ran_out: bool,
}

impl FollowedMemory {
    /// Says which device to follow. Otherwise it is the one with most events in the first snapshot.
    pub fn follow_device(&mut self, device: u32) {
        self.device.get_or_insert(device);
    }

    /// Says what the program does, in order of time.
    pub fn mark(&mut self, mark: Mark) {
        self.marks.add(mark);
    }

    /// Says what some blocks are for.
    pub fn observe(&mut self, observation: &Observation) {
        self.observed.add(observation);
    }

    /// Says that blocks of these sizes, if they stay, are buffers for communication.
    pub fn expect_buffers(&mut self, sizes: impl IntoIterator<Item = u64>) {
        self.observed.expect_buffers(sizes);
    }

    /// Says that the history was cut off and begins anew, where no pass goes on: what happened before is not asked again.
    pub fn break_off(&mut self) {
        self.tail = None;
        self.marks.forget_all();
    }

    /// Takes a snapshot, a pickle as PyTorch writes it, and when it was taken. After a gap all that waits is told.
    pub fn take(&mut self, pickle: &[u8], when: ClockSnapshot) -> Result<(Taken, Vec<MemoryEvent>), FollowError> {
        let mut document = Document::read(pickle).map_err(|reason| match reason {
            NoDocument::Pickle(error) => FollowError::Pickle(error),
            NoDocument::SomethingElse(what) => FollowError::SomethingElse(what),
            NoDocument::CutShort => FollowError::CutShort,
        })?;
        let busiest = document.devices.iter().max_by_key(|(_, device)| device.events.len()).map(|(number, _)| *number);
        let history = self.device.or(busiest).and_then(|number| document.devices.remove_entry(&number));
        let other_devices = document.devices.values().filter(|device| !device.events.is_empty()).count();
        let Some((number, history)) = history else {
            return Ok((Taken { other_devices, ..Taken::default() }, Vec::new()));
        };
        self.device = Some(number);
        let (taken, told) = self.take_history(&history, &document.calls, when);
        Ok((Taken { other_devices, ..taken }, told))
    }

    /// Where memory ran out the last time, and how often it did; none where it did not.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        self.shortage.as_ref()
    }

    fn take_history(
        &mut self,
        history: &DeviceHistory,
        calls: &Calls,
        when: ClockSnapshot,
    ) -> (Taken, Vec<MemoryEvent>) {
        let seen = self.tail.as_ref().map(|tail| tail.end_in(&history.events));
        let told = match seen {
            Some(Some(_)) => Vec::new(),
            Some(None) | None => self.begin_anew(history, when),
        };
        self.tail = Some(Tail::of(&history.events));
        let first = seen.flatten().unwrap_or(0);
        let new = &history.events[first..];
        for event in new {
            let time = self.time_of(event, when);
            self.times.push(time);
            self.waiting.push(*event);
        }
        let (all, times) = (history.events.len(), &self.times[self.times.len() - new.len()..]);
        let shortage = out_of_memory::last(history, calls, first, |event| times[event - first]);
        let taken =
            Taken { new: new.len(), all, gap: seen == Some(None), other_devices: 0, ran_out: shortage.is_some() };
        if let Some(shortage) = shortage {
            let before = self.shortage.as_ref().map_or(0, |before| before.times);
            self.shortage = Some(OutOfMemory { times: before + shortage.times, ..shortage });
        }
        (taken, told)
    }

    /// When an event was. What PyTorch makes its times with may step back from one snapshot to the next.
    fn time_of(&mut self, event: &Event, when: ClockSnapshot) -> i64 {
        let to_rank = when.rank_ns.0.saturating_sub(when.wall_ns.0);
        let time = event.time_us.map(|time_us| time_us.saturating_mul(1000).saturating_add(to_rank));
        self.latest = self.latest.max(time.unwrap_or(self.latest));
        self.latest
    }

    /// Brings what is shown to what there was when a history began.
    fn begin_anew(&mut self, history: &DeviceHistory, when: ClockSnapshot) -> Vec<MemoryEvent> {
        let mut told = self.tell_rest();
        self.began = match history.events.first() {
            Some(first) => self.time_of(first, when),
            None => self.latest.max(when.rank_ns.0),
        };
        self.latest = self.began;
        let segments = history.end.as_ref().map_or(&[][..], |end| end.segments.as_slice());
        let ranges = Ranges::before(history.events.iter().filter_map(range_change), segments);
        let blocks: Vec<(u64, Block)> = Lives::of(history).there_from_the_beginning().map(block).collect();
        let moment = Moment { time: self.began, step: self.marks.step_at(self.began), phase: None };
        self.shown.resume(&mut told, moment, ranges, &blocks);
        self.from_before = blocks.into_iter().filter(|(address, _)| !self.shown.has(*address)).collect();
        told
    }

    /// What is known of all steps that another one came after.
    pub fn tell(&mut self) -> Vec<MemoryEvent> {
        if self.waiting.len() > MOST_WAITING {
            return self.tell_rest();
        }
        // Marks may be ahead of the events: of a step that was not over by the last one more are to come.
        let end = self.marks.last_step_but_one_ended(self.latest);
        end.map_or_else(Vec::new, |end| self.tell_until(end, HistoryEnding::Open))
    }

    /// All that is known, whether or not a step is over.
    pub fn tell_rest(&mut self) -> Vec<MemoryEvent> {
        self.tell_until(i64::MAX, HistoryEnding::Final)
    }

    fn tell_until(&mut self, end: i64, ending: HistoryEnding) -> Vec<MemoryEvent> {
        let over = self.times.partition_point(|time| *time <= end);
        let blocks = std::mem::take(&mut self.from_before);
        if over == 0 && blocks.is_empty() {
            return Vec::new();
        }
        let (mut events, times) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.times));
        self.marks.give_stacks(&mut events, &times);
        forward::find(&mut events, ending, self.is_training, |index, address| {
            self.observed.is_parameter(address, times[index])
        });
        let end_state = EndState { segments: Vec::new(), blocks: blocks.clone() };
        let history = DeviceHistory { events, end: Some(end_state), ..DeviceHistory::default() };
        let mut told = Vec::new();
        self.tell_history(&mut told, &history, &times, over);
        self.is_training |=
            history.events[..over].iter().any(|event| event.stack.is_some_and(|stack| stack.pass.is_some()));
        let settled = over.checked_sub(1).map_or(i64::MIN, |last| times[last]).min(end);
        self.waiting.extend(&history.events[over..]);
        self.times.extend(&times[over..]);
        self.marks.forget_before(settled);
        self.observed.forget_before(settled);
        told
    }

    /// Tells the blocks from before a history, and the first events of it.
    fn tell_history(&mut self, told: &mut Vec<MemoryEvent>, history: &DeviceHistory, times: &[i64], over: usize) {
        let lives = Lives::of(history);
        let passes = Passes::of(&history.events, times, &[]);
        let passes = if self.is_training { passes.going_on() } else { passes };
        let rules = Rules::new(&history.events, &lives, &passes);
        let category = |life: &Life| {
            let from = life.from.map_or(self.began, |event| times[event]);
            let to = life.given_back().map_or(i64::MAX, |event| times[event]);
            let in_backward = life.given_back().is_some_and(|event| passes.at(event) == Some(Pass::Backward));
            let backwards = passes.backwards_between(life.from, life.given_back());
            let after_backward = life.from.is_some() && (self.is_training || passes.backward_between(None, life.from));
            let lived = Lived {
                from,
                to,
                until_backward: in_backward && backwards == 1,
                for_steps: after_backward && backwards >= 2,
            };
            self.observed.category(life, lived, rules.category(life))
        };
        let there: HashMap<u64, &Life> = lives.there_from_the_beginning().map(|life| (life.address, life)).collect();
        let moment = Moment { time: self.began, step: self.marks.step_at(self.began), phase: None };
        for (address, block) in history.end.iter().flat_map(|end| &end.blocks) {
            let category = there.get(address).map_or(MemoryCategory::Other, |life| category(life));
            self.shown.allocate(told, moment, *address, block.requested_bytes.unwrap_or(block.bytes), category);
        }
        let mut handed_out = lives.handed_out();
        for (event, &time) in history.events.iter().zip(times).take(over) {
            let pass = event.stack.and_then(|stack| stack.surrounding_pass());
            let phase = event_phase(event.stack, pass.map(phase));
            let moment = Moment { time, step: self.marks.step_at(time), phase };
            match (event.action, event.address) {
                (Action::Alloc, Some(address)) => {
                    let category = handed_out.next().map_or(MemoryCategory::Other, category);
                    self.shown.allocate(told, moment, address, event.bytes, category);
                }
                // A block that only waits for its stream is the program's no more.
                (Action::FreeRequested | Action::FreeCompleted, Some(address)) => {
                    self.shown.free(told, moment, address);
                }
                _ => {
                    if let Some(change) = range_change(event) {
                        self.shown.change_range(told, moment, change);
                    }
                }
            }
        }
    }
}

fn block(life: &Life) -> (u64, Block) {
    let Life { address, bytes, stack, .. } = *life;
    (address, Block { address: Some(address), bytes, requested_bytes: Some(bytes), active: true, stack })
}
