//! Memory over time: what is allocated after every event, by category and in all, and what is taken from the device.

use std::collections::HashMap;

use super::{
    RankPlan,
    counters::{Counter, Counters, Reading},
    detail::{Detail, Level},
    order::{Timed, Waiting},
    timing::Timing,
    tracks::{Group, Unit},
    writing::Writing,
};
use crate::{
    ids::Nanos,
    tables::{MemoryEvent, MemoryEvents},
    vocabulary::{MemoryCategory, MemoryOperation},
};

const ALLOCATED: usize = MemoryCategory::ALL.len();
const RESERVED: usize = ALLOCATED + 1;

/// The memory of a rank: the categories, all of them, and what is taken from the device.
pub(super) struct MemoryCounters<'a> {
    plan: &'a RankPlan<'a>,
    timing: Timing<'a>,
    counters: Counters,
    /// Those that had a value.
    told: [Option<Counter>; RESERVED + 1],
    /// Whether the categories are written, too.
    by_category: bool,
    values: [u64; RESERVED + 1],
    live: HashMap<u64, (u64, MemoryCategory)>,
    segments: HashMap<u64, u64>,
    waiting: Waiting<MemoryEvent>,
    /// Whether what there was before the window has been told.
    began: bool,
    /// When something was told last.
    last: Option<u64>,
}

impl<'a> MemoryCounters<'a> {
    pub(super) fn new(plan: &'a RankPlan<'a>, detail: Detail, parent: u64, timing: Timing<'a>) -> MemoryCounters<'a> {
        MemoryCounters {
            plan,
            timing,
            counters: Counters::of(parent),
            told: [const { None }; RESERVED + 1],
            by_category: detail.has(Level::MemoryByCategory),
            values: [0; RESERVED + 1],
            live: HashMap::new(),
            segments: HashMap::new(),
            waiting: Waiting::new(),
            began: false,
            last: None,
        }
    }

    /// Takes some events, and writes what they come to.
    pub(super) fn take(&mut self, events: &MemoryEvents, into: &mut Writing<'_>) {
        for event in events.rows() {
            // They are put in order by the rank's own clock.
            let time = event.time_ns.0.wrapping_sub(i64::MIN) as u64;
            self.waiting.push(Timed { start: time, end: time, what: event });
            if self.waiting.is_full() {
                self.release(false, into);
            }
        }
    }

    /// Writes the rest.
    pub(super) fn finish(mut self, into: &mut Writing<'_>) {
        self.release(true, into);
        // Each is told of to the end, also where it changed only once.
        if let Some(last) = self.last {
            let told = (0..=RESERVED).filter(|which| self.told[*which].is_some()).collect::<Vec<_>>();
            told.into_iter().for_each(|which| self.tell(which, last, into));
        }
    }

    fn release(&mut self, all: bool, into: &mut Writing<'_>) {
        let mut waiting = std::mem::replace(&mut self.waiting, Waiting::new());
        waiting.release(all, |event| {
            if !into.packets.has_failed() {
                self.play(&event.what, into);
            }
        });
        self.waiting = waiting;
    }

    /// Plays an event, and writes what it changed.
    fn play(&mut self, event: &MemoryEvent, into: &mut Writing<'_>) {
        let window = self.plan.window;
        let shown = window.touches((event.time_ns, event.time_ns));
        if shown && !self.began {
            self.began = true;
            let before = (0..=RESERVED).filter(|which| self.values[*which] > 0).collect::<Vec<_>>();
            let time = self.timing.at(window.from.max(Nanos(0)).min(event.time_ns));
            before.into_iter().for_each(|which| self.tell(which, time, into));
        }
        let (first, second) = self.apply(event);
        if shown {
            let time = self.timing.at(event.time_ns);
            [first, second].into_iter().flatten().for_each(|which| self.tell(which, time, into));
            if first.is_some_and(|first| first < ALLOCATED) {
                self.tell(ALLOCATED, time, into);
            }
        }
    }

    /// Applies an event; which values it changed, but for the sum of all categories.
    fn apply(&mut self, event: &MemoryEvent) -> (Option<usize>, Option<usize>) {
        let bytes = event.bytes.unwrap_or(0);
        match event.op {
            MemoryOperation::Alloc => {
                let category = event.category.unwrap_or(MemoryCategory::Other);
                // Sizes in a file that somebody else made may add up to more than there are numbers for.
                let bytes = bytes.min(u64::MAX - self.values[ALLOCATED]);
                let lost = self.live.insert(event.address, (bytes, category)).map(|lost| self.give_back(lost));
                self.values[category as usize] += bytes;
                self.values[ALLOCATED] += bytes;
                (Some(category as usize), lost.filter(|lost| *lost != category as usize))
            }
            MemoryOperation::Free => match self.live.remove(&event.address) {
                // Blocks of no bytes may all have one address, which the next of them to be freed names again.
                Some(held) if held.0 == 0 => {
                    self.live.insert(event.address, held);
                    (None, None)
                }
                Some(held) => (Some(self.give_back(held)), None),
                // Recording began after it was allocated.
                None => (None, None),
            },
            MemoryOperation::Reserve => {
                let bytes = bytes.min(u64::MAX - self.values[RESERVED]);
                let lost = self.segments.insert(event.address, bytes).unwrap_or(0);
                self.values[RESERVED] = self.values[RESERVED] + bytes - lost;
                (Some(RESERVED), None)
            }
            MemoryOperation::Release => match self.segments.remove(&event.address) {
                Some(bytes) => {
                    self.values[RESERVED] -= bytes;
                    (Some(RESERVED), None)
                }
                None => (None, None),
            },
        }
    }

    fn give_back(&mut self, (bytes, category): (u64, MemoryCategory)) -> usize {
        self.values[category as usize] -= bytes;
        self.values[ALLOCATED] -= bytes;
        category as usize
    }

    /// Writes a value.
    fn tell(&mut self, which: usize, time: u64, into: &mut Writing<'_>) {
        if which < ALLOCATED && !self.by_category {
            return;
        }
        let counters = &mut self.counters;
        let counter = self.told[which].get_or_insert_with(|| {
            // All of it first, and then its parts.
            let (name, order) = match which {
                ALLOCATED => ("allocated".into(), 0),
                RESERVED => ("reserved".into(), 1),
                _ => (MemoryCategory::ALL[which].spelled(), 2 + which as i32),
            };
            counters.counter((Group::Memory, &name), &Unit::Bytes, order, into)
        });
        counter.push(time, Reading::Bytes(self.values[which]), into);
        self.last = Some(time);
    }
}
