//! One device's history as the tables of a rank.

use std::collections::HashMap;

use super::{
    annotations::{Stretch, phase},
    category::Rules,
    document::DeviceHistory,
    frame::Stack,
    lives::Lives,
    passes::Passes,
    ranges::{Change, Ranges},
    records::{Action, Event},
};
use crate::{
    ids::{NameId, Nanos, Step},
    names::FIRST_NAME,
    rank_data::RankData,
    tables::{MemoryEvent, Span, Strings, Table},
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
    /// How often the device had no memory left.
    pub(super) out_of_memory: u64,
    /// Events of kinds that are not known.
    pub(super) unknown_events: u64,
}

impl DeviceTables {
    /// Plays a history, and says what each block is for.
    pub(super) fn of(history: &DeviceHistory, stretches: &[Stretch]) -> DeviceTables {
        let events = &history.events;
        let (times, began) = times(events);
        // Without times nothing can be said of what is around an event.
        let stretches = if began.is_some() { stretches } else { &[] };
        let lives = Lives::of(history);
        let passes = Passes::of(events, &times, stretches);
        let rules = Rules::new(events, &lives, &passes);
        let mut rows = Rows { data: RankData::default(), steps: StepsByTime::new(stretches) };
        let first = times.first().copied().unwrap_or(0);
        let mut ranges = Ranges::before(
            events.iter().filter_map(range_change),
            history.end.as_ref().map_or(&[], |end| end.segments.as_slice()),
        );
        for (address, bytes) in ranges.iter() {
            rows.range(first, Change::Taken(address, bytes));
        }
        for life in lives.there_from_the_beginning() {
            rows.block(first, MemoryOperation::Alloc, life.address, life.bytes, Some(rules.category(life)), None);
        }
        let mut changes = Vec::new();
        let mut handed_out = lives.handed_out();
        for (index, event) in events.iter().enumerate() {
            let time = times[index];
            let during = || event_phase(event.stack, passes.at(index).map(phase));
            match (event.action, event.address) {
                (Action::Alloc, Some(address)) => {
                    let category = handed_out.next().map(|life| rules.category(life));
                    rows.block(time, MemoryOperation::Alloc, address, event.bytes, category, during());
                }
                (Action::FreeCompleted, Some(address)) => {
                    rows.block(time, MemoryOperation::Free, address, event.bytes, None, during());
                }
                _ => {
                    match range_change(event) {
                        Some(Change::Taken(address, bytes)) => ranges.take(address, bytes, &mut changes),
                        Some(Change::GivenBack(address, bytes)) => ranges.give_back(address, bytes, &mut changes),
                        None => {}
                    }
                    changes.drain(..).for_each(|change| rows.range(time, change));
                }
            }
        }
        let mut data = rows.data;
        push_spans(&mut data, stretches);
        let count = |action: Action| events.iter().filter(|event| event.action == action).count() as u64;
        DeviceTables {
            data,
            began,
            blocks_from_before: lives.there_from_the_beginning().count() as u64,
            rounding_bytes: rounding(history),
            out_of_memory: count(Action::OutOfMemory),
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

/// What an event does to what is taken from the device.
pub(super) fn range_change(event: &Event) -> Option<Change> {
    match event.action {
        Action::Reserve => Some(Change::Taken(event.address?, event.bytes)),
        Action::Release => Some(Change::GivenBack(event.address?, event.bytes)),
        _ => None,
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
struct Rows<'stretches> {
    data: RankData,
    steps: StepsByTime<'stretches>,
}

impl Rows<'_> {
    fn block(
        &mut self,
        time: i64,
        op: MemoryOperation,
        address: u64,
        bytes: u64,
        category: Option<MemoryCategory>,
        phase: Option<Phase>,
    ) {
        let step = self.steps.at(time);
        let (time_ns, bytes) = (Nanos(time), Some(bytes));
        let event = MemoryEvent { time_ns, op, address, bytes, category, step, phase, layer: None, pool: None };
        self.data.memory.push(&event);
    }

    fn range(&mut self, time: i64, change: Change) {
        match change {
            Change::Taken(address, bytes) => self.block(time, MemoryOperation::Reserve, address, bytes, None, None),
            Change::GivenBack(address, bytes) => self.block(time, MemoryOperation::Release, address, bytes, None, None),
        }
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
fn push_spans(data: &mut RankData, stretches: &[Stretch]) {
    let mut numbers: HashMap<&str, NameId> = HashMap::new();
    let mut strings = Strings::default();
    for stretch in stretches {
        let next = NameId(FIRST_NAME.0.saturating_add(numbers.len() as u32));
        let name = *numbers.entry(&stretch.name).or_insert_with(|| {
            strings.push_row(&(next, stretch.name.clone()));
            next
        });
        let duration = Nanos(stretch.to.saturating_sub(stretch.from));
        let span = Span::new(stretch.kind(), name, Nanos(stretch.from), duration);
        data.spans.push(&Span { step: stretch.step, phase: stretch.pass.map(phase), ..span });
    }
    data.names.extend(strings.rows());
}
