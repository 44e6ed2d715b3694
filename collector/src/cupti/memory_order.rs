//! Memory events on their way to the device's time, of all threads.

use stepscope_traces::{MemoryEvent, Nanos};

use super::{
    streams::CuptiStream,
    thread_order::{Settled, ThreadOrder},
};
use crate::{
    launch_notes::{MemoryNote, NoteThread},
    ticks::{TickCounter, TickMap},
};

/// How many launches and events of all threads may wait, some 10 MB. A busy job has as many in half a second.
const MOST_WAITING: usize = 128 << 10;

/// Where the events of each thread wait for the launches around them.
pub(crate) struct MemoryOrder {
    /// In order of which stream each recorder's program hands out memory. They are few.
    streams: Vec<(u64, CuptiStream)>,
    threads: Vec<Thread>,
    next_id: u64,
    counter: TickCounter,
    ticks: TickMap,
}

/// A thread that works for a recorder.
struct Thread {
    /// Never used again, since positions outlive what they are in.
    id: u64,
    number: NoteThread,
    recorder: u64,
    order: ThreadOrder,
}

/// Which launch of which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    thread: u64,
    launch: u64,
}

impl MemoryOrder {
    pub(crate) fn new() -> MemoryOrder {
        MemoryOrder {
            streams: Vec::new(),
            threads: Vec::new(),
            next_id: 0,
            counter: TickCounter::new(),
            ticks: TickMap::default(),
        }
    }

    /// Says in order of which stream a recorder's program hands out memory.
    pub(crate) fn by(&mut self, recorder: u64, place: CuptiStream) {
        self.streams.retain(|(other, _)| *other != recorder);
        self.streams.push((recorder, place));
        self.read_clocks();
    }

    /// To be called before notes are read, so that the times in them lie between two readings, or just behind the last.
    pub(crate) fn read_clocks(&mut self) {
        if !self.streams.is_empty() {
            self.ticks.anchor(&self.counter);
        }
    }

    fn thread(&mut self, number: NoteThread, recorder: u64) -> &mut Thread {
        let is_it = |thread: &Thread| thread.number == number && thread.recorder == recorder;
        let known = self.threads.iter().position(is_it);
        let index = known.unwrap_or_else(|| {
            self.threads.push(Thread { id: self.next_id, number, recorder, order: ThreadOrder::new() });
            self.next_id += 1;
            self.threads.len() - 1
        });
        &mut self.threads[index]
    }

    /// Adds a launch of a thread. `None` where it orders nothing.
    pub(crate) fn launched(&mut self, thread: NoteThread, recorder: u64) -> Option<Position> {
        self.streams.iter().find(|(other, _)| *other == recorder)?;
        let thread = self.thread(thread, recorder);
        Some(Position { thread: thread.id, launch: thread.order.launch() })
    }

    /// Adds an event of a thread.
    pub(crate) fn add(&mut self, thread: NoteThread, note: &MemoryNote) {
        let event = MemoryEvent { time_ns: self.ticks.time(note.time), ..note.event };
        self.thread(thread, note.recorder).order.add(event);
    }

    /// Says when something that was launched ran, and where; `None` where a call put nothing on a stream.
    pub(crate) fn ran(&mut self, position: Position, work: Option<(CuptiStream, Nanos, Nanos)>) {
        let MemoryOrder { streams, threads, .. } = self;
        let Some(thread) = threads.iter_mut().find(|thread| thread.id == position.thread) else { return };
        match work {
            Some((place, start, end)) if streams.contains(&(thread.recorder, place)) => {
                thread.order.ran(position.launch, start, end);
            }
            _ => thread.order.ran_elsewhere(position.launch),
        }
    }

    /// Says that a thread leaves no more notes.
    pub(crate) fn thread_ended(&mut self, number: NoteThread) {
        self.threads.iter_mut().filter(|thread| thread.number == number).for_each(|thread| thread.order.end());
    }

    /// Says that a thread recorded events past its notes, in the host's time, which the ones that wait are before.
    pub(crate) fn passed_by(&mut self, number: NoteThread, mut each: impl FnMut(u64, Settled)) {
        for thread in self.threads.iter_mut().filter(|thread| thread.number == number) {
            thread.order.settle_by_host(|settled| each(thread.recorder, settled));
        }
    }

    /// Expects no more of what has not come for long. To be called regularly.
    pub(crate) fn look(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.order.look());
    }

    /// Gives `each` the events whose time is known, with their recorder.
    pub(crate) fn settle(&mut self, mut each: impl FnMut(u64, Settled)) {
        for thread in &mut self.threads {
            thread.order.settle(|settled| each(thread.recorder, settled));
        }
        if self.threads.iter().map(|thread| thread.order.len()).sum::<usize>() > MOST_WAITING {
            for thread in &mut self.threads {
                thread.order.settle_by_host(|settled| each(thread.recorder, settled));
            }
        }
        self.threads.retain(|thread| !thread.order.is_over());
    }

    /// Gives `each` every event of a recorder, and forgets it.
    pub(crate) fn end(&mut self, recorder: u64, mut each: impl FnMut(Settled)) {
        self.threads.retain_mut(|thread| {
            let is_its = thread.recorder == recorder;
            if is_its {
                thread.order.settle_all(&mut each);
            }
            !is_its
        });
        self.streams.retain(|(other, _)| *other != recorder);
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::MemoryOperation;

    use super::*;

    const RECORDER: u64 = 3;
    const OTHER: u64 = 4;
    const HERE: CuptiStream = CuptiStream { context: 1, stream: 7 };
    const ELSEWHERE: CuptiStream = CuptiStream { context: 1, stream: 8 };

    fn ordered() -> MemoryOrder {
        let mut order = MemoryOrder::new();
        order.by(RECORDER, HERE);
        order.by(OTHER, ELSEWHERE);
        order
    }

    fn add(order: &mut MemoryOrder, thread: u64, recorder: u64, op: MemoryOperation) {
        let event = MemoryEvent {
            time_ns: Nanos(0),
            op,
            address: thread,
            bytes: None,
            category: None,
            step: None,
            phase: None,
            layer: None,
            pool: None,
            site: None,
        };
        let time = order.counter.read();
        order.add(NoteThread(thread), &MemoryNote { recorder, time, event });
    }

    /// Recorder, thread and time of what is settled; of one in the host's time, no time.
    fn settle(order: &mut MemoryOrder) -> Vec<(u64, u64, Option<i64>)> {
        let mut seen = Vec::new();
        order.settle(|recorder, Settled { event, by_host }| {
            seen.push((recorder, event.address, (!by_host).then_some(event.time_ns.0)));
        });
        seen
    }

    fn ran(place: CuptiStream, start: i64, end: i64) -> Option<(CuptiStream, Nanos, Nanos)> {
        Some((place, Nanos(start), Nanos(end)))
    }

    #[test]
    fn each_thread_of_each_recorder_has_its_own_order() {
        let mut order = ordered();
        assert_eq!(order.launched(NoteThread(0), 77), None, "nobody orders memory there");
        for (thread, recorder) in [(1, RECORDER), (2, RECORDER), (2, OTHER)] {
            add(&mut order, thread, recorder, MemoryOperation::Alloc);
        }
        let [first, second, other] = [(1, RECORDER), (2, RECORDER), (2, OTHER)]
            .map(|(thread, recorder)| order.launched(NoteThread(thread), recorder).unwrap());
        order.ran(second, ran(HERE, 10, 20));
        assert_eq!(settle(&mut order), [(RECORDER, 2, Some(10))]);
        order.ran(other, ran(HERE, 30, 40));
        order.ran(first, None);
        assert_eq!(settle(&mut order), [], "not on the stream of that recorder, and on none");
        let next = order.launched(NoteThread(2), OTHER).unwrap();
        order.ran(next, ran(ELSEWHERE, 50, 60));
        assert_eq!(settle(&mut order), [(OTHER, 2, Some(50))]);
        order.thread_ended(NoteThread(1));
        assert_eq!(settle(&mut order), [(RECORDER, 1, None)]);
        assert_eq!(order.threads.len(), 2);
    }

    #[test]
    fn what_ran_for_a_recorder_that_left_says_nothing_when_it_is_back() {
        let mut order = ordered();
        let late = order.launched(NoteThread(1), RECORDER).unwrap();
        add(&mut order, 1, RECORDER, MemoryOperation::Free);
        let mut ended = 0;
        order.end(RECORDER, |_| ended += 1);
        assert_eq!((ended, order.threads.len()), (1, 0));
        order.by(RECORDER, HERE);
        order.launched(NoteThread(1), RECORDER).unwrap();
        add(&mut order, 1, RECORDER, MemoryOperation::Free);
        order.ran(late, ran(HERE, 10, 20));
        assert_eq!(settle(&mut order), []);
    }

    #[test]
    fn what_waits_is_bounded_and_goes_on_in_the_hosts_time() {
        let mut order = ordered();
        order.launched(NoteThread(1), RECORDER).unwrap();
        (0..MOST_WAITING - 1).for_each(|_| add(&mut order, 1, RECORDER, MemoryOperation::Free));
        assert_eq!(settle(&mut order), []);
        add(&mut order, 2, OTHER, MemoryOperation::Alloc);
        let settled = settle(&mut order);
        assert_eq!(settled.len(), MOST_WAITING);
        assert!(settled.iter().all(|(.., time)| time.is_none()));
        let next = order.launched(NoteThread(1), RECORDER).unwrap();
        order.ran(next, ran(HERE, i64::MAX - 1, i64::MAX));
        add(&mut order, 1, RECORDER, MemoryOperation::Free);
        assert_eq!(settle(&mut order), [(RECORDER, 1, Some(i64::MAX))], "as before");
        assert!(size_of::<MemoryEvent>() <= 72, "{}", size_of::<MemoryEvent>());
    }
}
