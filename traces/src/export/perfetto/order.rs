//! The order of time, out of the order of recording, with a bounded memory.
//!
//! What is recorded stands roughly in the order in which it ended. So many events wait here that what begins first among
//! them is, but for rare ones, what begins next at all. One that comes too late is shown where it belongs, and beside its
//! track if need be (see [`super::slices`]).

use std::{cmp::Reverse, mem};

/// How many events wait, at most.
const MOST_WAITING: usize = 1 << 17;

/// Events that wait for those that begin earlier.
pub(super) struct Waiting<T> {
    events: Vec<Timed<T>>,
    /// Where those go that stay: memory that is used again.
    staying: Vec<Timed<T>>,
    /// When each begins, the longer first of two that begin together, and its place.
    order: Vec<(u64, Reverse<u64>, u32)>,
    most: usize,
}

/// Something with its time.
#[derive(Clone, Copy)]
pub(super) struct Timed<T> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) what: T,
}

impl<T: Copy> Waiting<T> {
    pub(super) fn new() -> Waiting<T> {
        Waiting::at_most(MOST_WAITING)
    }

    fn at_most(most: usize) -> Waiting<T> {
        Waiting { events: Vec::new(), staying: Vec::new(), order: Vec::new(), most }
    }

    /// Adds an event. Whoever does has to [release](Waiting::release) some when there is no more room.
    pub(super) fn push(&mut self, event: Timed<T>) {
        self.events.push(event);
    }

    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= self.most
    }

    /// Lets half of them go, or all of them, in order.
    pub(super) fn release(&mut self, all: bool, mut take: impl FnMut(Timed<T>)) {
        let key = |(place, event): (usize, &Timed<T>)| (event.start, Reverse(event.end), place as u32);
        self.order.clear();
        self.order.extend(self.events.iter().enumerate().map(key));
        // Those of a stream are in order already, and the stable sort finds such runs.
        self.order.sort();
        let count = if all { self.events.len() } else { self.events.len() / 2 };
        let (go, stay) = self.order.split_at(count);
        let event = |(_, _, place): &(u64, Reverse<u64>, u32)| self.events[*place as usize];
        go.iter().map(event).for_each(&mut take);
        self.staying.clear();
        self.staying.extend(stay.iter().map(event));
        mem::swap(&mut self.events, &mut self.staying);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_not_too_late_comes_in_order(lengths in prop::collection::vec((0..20_u64, 0..15_u64), 0..300)) {
            // Recorded as they end, one after another.
            let mut now = 0;
            let mut waiting = Waiting::at_most(64);
            let mut seen = Vec::new();
            for (number, (gap, length)) in lengths.iter().enumerate() {
                now += gap;
                waiting.push(Timed { start: now.saturating_sub(*length), end: now, what: number });
                if waiting.is_full() {
                    waiting.release(false, |event| seen.push((event.start, event.end, event.what)));
                }
            }
            waiting.release(true, |event| seen.push((event.start, event.end, event.what)));
            prop_assert_eq!(seen.len(), lengths.len());
            let mut sorted = seen.clone();
            sorted.sort_by_key(|(start, end, number)| (*start, Reverse(*end), *number));
            // No event is longer than what waits, unless many begin at once.
            if lengths.iter().all(|(gap, _)| *gap > 0) {
                prop_assert_eq!(seen, sorted);
            } else {
                sorted.sort_by_key(|(_, _, number)| *number);
                prop_assert!(sorted.iter().enumerate().all(|(place, (_, _, number))| place == *number), "each once");
            }
        }
    }
}
