//! One device's history as the tables of a rank.

use std::collections::{HashMap, HashSet};

use super::{
    super::profile::NameBook,
    annotations::{Stretch, phase},
    calls::{Calls, CallsId},
    category::Rules,
    document::DeviceHistory,
    frame::Stack,
    lives::{Life, Lives},
    out_of_memory,
    passes::Passes,
    ranges::{Change, Ranges, range_change},
    records::{Action, Event},
};
use crate::{
    ids::{NameId, Nanos, Step},
    notes::OutOfMemory,
    rank_data::RankData,
    tables::{MemoryEvent, Span},
    vocabulary::{MemoryCategory, MemoryOperation, Phase},
};

/// What a device's history comes to.
#[derive(Debug)]
pub(super) struct DeviceTables {
    pub(super) data: RankData,
    /// When the first event was, in nanoseconds since 1970; none where events have no times, and their order is their time.
    pub(super) began: Option<i64>,
    /// How many blocks were there before the first event.
    pub(super) blocks_from_before: u64,
    /// What the allocator adds to what was asked for, in the end, where that is known.
    pub(super) rounding_bytes: Option<u64>,
    /// When the device had no memory left, the last time.
    pub(super) out_of_memory: Option<OutOfMemory>,
    /// Events of kinds that are not known.
    pub(super) unknown_events: u64,
}

impl DeviceTables {
    /// Plays a history, and says what each block is for.
    pub(super) fn of(history: &DeviceHistory, stretches: &[Stretch], calls: &Calls) -> DeviceTables {
        let events = &history.events;
        let (times, began) = times(events);
        // Without times nothing can be said of what is around an event.
        let stretches = if began.is_some() { stretches } else { &[] };
        let mut lives = Lives::of(history);
        lives.round_up(history);
        let passes = Passes::of(events, &times, stretches);
        let rules = Rules::new(events, &lives, &passes);
        let mut rows = MemoryRows {
            data: RankData::default(),
            steps: StepsByTime::new(stretches),
            names: NameBook::default(),
            sites: HashMap::new(),
            sizes: HashMap::new(),
            calls,
        };
        let first = times.first().copied().unwrap_or(0);
        let mut ranges = Ranges::before(
            events.iter().filter_map(range_change),
            history.end.as_ref().map_or(&[], |end| end.segments.as_slice()),
        );
        for (address, bytes) in ranges.iter() {
            rows.range(first, Change::Taken(address, bytes));
        }
        for life in lives.there_from_the_beginning() {
            rows.allocation(first, life, rules.category(life), None);
        }
        let mut changes = Vec::new();
        let mut handed_out = lives.handed_out();
        let mut waiting = HashSet::new();
        for (index, event) in events.iter().enumerate() {
            let time = times[index];
            let during = || event_phase(event.stack, passes.at(index).map(phase));
            match (event.action, event.address) {
                (Action::Alloc, Some(_)) => {
                    if let Some(life) = handed_out.next() {
                        rows.allocation(time, life, rules.category(life), during());
                    }
                }
                (Action::FreeRequested, Some(address)) => {
                    waiting.insert(address);
                    rows.free(time, address, event.bytes, during());
                }
                // Mostly it was given back before, and waited for its stream.
                (Action::FreeCompleted, Some(address)) if waiting.remove(&address) => {}
                (Action::FreeCompleted, Some(address)) => rows.free(time, address, event.bytes, during()),
                _ => {
                    range_change(event).into_iter().for_each(|change| ranges.change(change, &mut changes));
                    changes.drain(..).for_each(|change| rows.range(time, change));
                }
            }
        }
        let MemoryRows { mut data, mut names, .. } = rows;
        push_spans(&mut data, &mut names, stretches);
        data.names = names.into_names();
        let count = |action: Action| events.iter().filter(|event| event.action == action).count() as u64;
        DeviceTables {
            data,
            began,
            blocks_from_before: lives.there_from_the_beginning().count() as u64,
            rounding_bytes: rounding(history),
            out_of_memory: out_of_memory::last(history, calls, 0, |event| times[event]),
            unknown_events: count(Action::Unknown),
        }
    }
}

/// When each event happened, never before the one before it: the order is the allocator's, and a clock may step back.
/// Where not all events have a time, their order is their time, and there is no beginning.
fn times(events: &[Event]) -> (Vec<i64>, Option<i64>) {
    let mut latest = i64::MIN;
    let mut in_order = |time_us: i64| {
        latest = latest.max(time_us.saturating_mul(1000));
        latest
    };
    let times: Option<Vec<i64>> = events.iter().map(|event| event.time_us.map(&mut in_order)).collect();
    match times {
        Some(times) if !times.is_empty() => {
            let began = times[0];
            (times, Some(began))
        }
        _ => ((0..events.len() as i64).collect(), None),
    }
}

pub(super) fn event_phase(stack: Option<Stack>, pass: Option<Phase>) -> Option<Phase> {
    if stack.is_some_and(Stack::is_recomputation) { Some(Phase::Recompute) } else { pass }
}

/// What blocks have in the end beyond what was asked for.
fn rounding(history: &DeviceHistory) -> Option<u64> {
    let blocks = &history.end.as_ref()?.blocks;
    let extra = blocks.iter().map(|(_, block)| Some(block.bytes.saturating_sub(block.requested_bytes?)));
    extra.sum::<Option<u64>>()
}

/// Rows of the memory table.
struct MemoryRows<'history> {
    data: RankData,
    steps: StepsByTime<'history>,
    names: NameBook,
    sites: HashMap<CallsId, NameId>,
    /// How large the block at each address is.
    sizes: HashMap<u64, u64>,
    calls: &'history Calls,
}

impl MemoryRows<'_> {
    /// A block that was handed out.
    fn allocation(&mut self, time: i64, life: &Life, category: MemoryCategory, phase: Option<Phase>) {
        let site = life.stack.and_then(|stack| self.site(stack.calls));
        self.sizes.insert(life.address, life.bytes);
        let event = self.event(time, MemoryOperation::Alloc, life.address, life.bytes, phase);
        self.data.memory.push(&MemoryEvent { category: Some(category), site, ..event });
    }

    /// A block that was given back. Where none is known there, it has the bytes that were asked for.
    fn free(&mut self, time: i64, address: u64, asked: u64, phase: Option<Phase>) {
        let bytes = self.sizes.remove(&address).unwrap_or(asked);
        let event = self.event(time, MemoryOperation::Free, address, bytes, phase);
        self.data.memory.push(&event);
    }

    fn event(&mut self, time: i64, op: MemoryOperation, address: u64, bytes: u64, phase: Option<Phase>) -> MemoryEvent {
        MemoryEvent { step: self.steps.at(time), phase, ..MemoryEvent::new(Nanos(time), op, address, Some(bytes)) }
    }

    fn site(&mut self, calls: CallsId) -> Option<NameId> {
        if calls == CallsId::default() {
            return None;
        }
        Some(*self.sites.entry(calls).or_insert_with(|| self.names.id(&self.calls.of(calls).join("\n"))))
    }

    fn range(&mut self, time: i64, change: Change) {
        let (op, address, bytes) = match change {
            Change::Taken(address, bytes) => (MemoryOperation::Reserve, address, bytes),
            Change::GivenBack(address, bytes) => (MemoryOperation::Release, address, bytes),
        };
        let event = self.event(time, op, address, bytes, None);
        self.data.memory.push(&event);
    }
}

/// Finds the step around a time; times come in order.
struct StepsByTime<'stretches> {
    stretches: &'stretches [Stretch],
    next: usize,
    current: Option<(Step, i64)>,
}

impl<'stretches> StepsByTime<'stretches> {
    fn new(stretches: &'stretches [Stretch]) -> StepsByTime<'stretches> {
        StepsByTime { stretches, next: 0, current: None }
    }

    fn at(&mut self, time: i64) -> Option<Step> {
        while let Some(stretch) = self.stretches.get(self.next).filter(|stretch| stretch.from <= time) {
            if let Some(step) = stretch.step {
                self.current = Some((step, stretch.to));
            }
            self.next += 1;
        }
        self.current.filter(|(_, end)| time <= *end).map(|(step, _)| step)
    }
}

/// Adds what the program named.
fn push_spans(data: &mut RankData, names: &mut NameBook, stretches: &[Stretch]) {
    for stretch in stretches {
        let duration = Nanos(stretch.to.saturating_sub(stretch.from));
        let span = Span::new(stretch.kind(), names.id(&stretch.name), Nanos(stretch.from), duration);
        data.spans.push(&Span { step: stretch.step, phase: stretch.pass.map(phase), ..span });
    }
}
