//! One thread's launches and memory events, in the order in which it made them: when each event was on the device.
//!
//! Memory that is handed out in order of a stream is taken where the next launch there begins, since nothing uses it
//! before, and is free where the last launch there ended. The host knows neither when it records the event. So events
//! wait here until the launches around them have run.

use std::collections::VecDeque;

use stepscope_traces::{MemoryEvent, MemoryOperation, Nanos};

/// For how many looks something that may never come is waited for: a next launch, or the record of a launch when a later
/// one has run. A busy job's buffers come full, so that one may come some tenths of a second after its next.
const MOST_LOOKS: usize = 5;

/// What a thread did, from the first thing on that is not settled.
pub(crate) struct ThreadOrder {
    launches: VecDeque<Launch>,
    /// The number of the first of them.
    first: u64,
    events: VecDeque<Waiting>,
    /// When the last launch before them ended, of those that ran on the stream.
    last_end: Option<Nanos>,
    /// Whether there was a launch after that one of which nothing is known.
    is_gap: bool,
    /// The time of the last event that was settled: no later one is before it.
    floor: Nanos,
    /// Whether the next event is not before its own time on the host.
    is_behind: bool,
    /// Whether the thread launches nothing any more.
    has_ended: bool,
    looks: u64,
    /// The number of the newest launch that ran on the stream; now, and at the last looks.
    newest: u64,
    newest_then: [u64; MOST_LOOKS],
}

/// What is known of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    /// Nothing yet.
    Waiting,
    Ran {
        start: Nanos,
        end: Nanos,
    },
    /// It has nothing to do with memory.
    Elsewhere,
    /// Nothing, and no more is expected.
    Lost,
}

/// An event that waits, in the host's time.
#[derive(Clone, Copy)]
struct Waiting {
    event: MemoryEvent,
    /// How many launches the thread had made before.
    before: u64,
    /// Since which look it waits.
    since: u64,
}

/// An event that is settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settled {
    pub(crate) event: MemoryEvent,
    /// Whether its time is the host's, for want of a better one.
    pub(crate) by_host: bool,
}

impl ThreadOrder {
    pub(crate) fn new() -> ThreadOrder {
        ThreadOrder {
            launches: VecDeque::new(),
            first: 0,
            events: VecDeque::new(),
            last_end: None,
            is_gap: false,
            floor: Nanos(i64::MIN),
            is_behind: false,
            has_ended: false,
            looks: 0,
            newest: 0,
            newest_then: [0; MOST_LOOKS],
        }
    }

    /// Adds a launch, and tells its number.
    pub(crate) fn launch(&mut self) -> u64 {
        self.launches.push_back(Launch::Waiting);
        self.first + self.launches.len() as u64 - 1
    }

    /// Adds an event, in the host's time.
    pub(crate) fn add(&mut self, event: MemoryEvent) {
        if std::mem::take(&mut self.is_behind) {
            self.floor = self.floor.max(event.time_ns);
        }
        let before = self.first + self.launches.len() as u64;
        self.events.push_back(Waiting { event, before, since: self.looks });
    }

    /// Says when something ran that a launch put on the stream; a graph puts several things there.
    pub(crate) fn ran(&mut self, number: u64, start: Nanos, end: Nanos) {
        self.newest = self.newest.max(number);
        if let Some(launch) = self.find(number) {
            *launch = match *launch {
                Launch::Ran { start: first, end: last } => Launch::Ran { start: first.min(start), end: last.max(end) },
                _ => Launch::Ran { start, end },
            };
        }
    }

    /// Says that a launch ran on another stream.
    pub(crate) fn ran_elsewhere(&mut self, number: u64) {
        if let Some(launch) = self.find(number).filter(|launch| !matches!(launch, Launch::Ran { .. })) {
            *launch = Launch::Elsewhere;
        }
    }

    fn find(&mut self, number: u64) -> Option<&mut Launch> {
        self.launches.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.launches.len() + self.events.len()
    }

    /// Says that the thread launches nothing any more.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether nothing is left of a thread that has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.len() == 0
    }

    /// Expects no more of what has not come for long. To be called regularly.
    pub(crate) fn look(&mut self) {
        let slot = (self.looks % MOST_LOOKS as u64) as usize;
        self.looks += 1;
        // A stream is in order: what was launched before that one has run, if it was on the stream.
        let newest_then = std::mem::replace(&mut self.newest_then[slot], self.newest);
        self.lose(newest_then.saturating_sub(self.first));
    }

    /// Expects nothing of the first launches, as far as nothing came.
    fn lose(&mut self, launches: u64) {
        let launches = usize::try_from(launches).unwrap_or(usize::MAX);
        let waiting = self.launches.iter_mut().take(launches).filter(|launch| **launch == Launch::Waiting);
        waiting.for_each(|launch| *launch = Launch::Lost);
    }

    /// Gives `each` the events whose time is known, in order.
    pub(crate) fn settle(&mut self, mut each: impl FnMut(Settled)) {
        loop {
            let before = self.events.front().map_or(u64::MAX, |waiting| waiting.before);
            if !self.pass(before) {
                return;
            }
            let Some(&Waiting { event, since, .. }) = self.events.front() else { return };
            let takes = matches!(event.op, MemoryOperation::Alloc | MemoryOperation::Reserve);
            let (host, is_patient) = (event.time_ns, !self.has_ended && self.looks - since < MOST_LOOKS as u64);
            // Behind a gap, memory is free for certain only where the next launch begins.
            let by_device = if takes || self.is_gap {
                match self.next() {
                    Some(Launch::Ran { start, .. }) => Some(start),
                    None if !is_patient => None,
                    _ => return,
                }
            } else {
                self.last_end
            };
            // Not before the host asked for it, nor before what the device had done by then.
            let otherwise = self.last_end.map_or(host, |end| end.max(host));
            self.events.pop_front();
            each(self.at(event, by_device.unwrap_or(otherwise), by_device.is_none()));
        }
    }

    /// Lets go of the launches before the one of this number; whether all of them are settled.
    fn pass(&mut self, number: u64) -> bool {
        while self.first < number {
            match self.launches.front() {
                None => break,
                Some(Launch::Waiting) => return false,
                Some(Launch::Ran { end, .. }) => {
                    self.last_end = self.last_end.max(Some(*end));
                    self.is_gap = false;
                }
                Some(Launch::Elsewhere) => {}
                Some(Launch::Lost) => self.is_gap = true,
            }
            self.launches.pop_front();
            self.first += 1;
        }
        true
    }

    /// The next launch that is, or may be, on the stream. Lets go of those before it.
    fn next(&mut self) -> Option<Launch> {
        while let Some(Launch::Elsewhere | Launch::Lost) = self.launches.front() {
            self.is_gap |= self.launches.pop_front() == Some(Launch::Lost);
            self.first += 1;
        }
        self.launches.front().copied()
    }

    fn at(&mut self, event: MemoryEvent, time: Nanos, by_host: bool) -> Settled {
        self.floor = self.floor.max(time);
        Settled { event: MemoryEvent { time_ns: self.floor, ..event }, by_host }
    }

    /// Gives `each` every event, by what is known now.
    pub(crate) fn settle_all(&mut self, each: impl FnMut(Settled)) {
        self.lose(u64::MAX);
        self.has_ended = true;
        self.settle(each);
    }

    /// Gives `each` every event in the host's time, and forgets the launches. What the thread does next is not before the
    /// host does it: there may be events of it that did not come here.
    pub(crate) fn settle_by_host(&mut self, mut each: impl FnMut(Settled)) {
        while let Some(Waiting { event, .. }) = self.events.pop_front() {
            each(self.at(event, event.time_ns, true));
        }
        self.is_gap |= !self.launches.is_empty();
        self.first += self.launches.len() as u64;
        self.launches.clear();
        self.is_behind = true;
    }
}

#[cfg(test)]
mod tests;
