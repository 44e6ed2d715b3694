//! The way of events from a thread of the program to the writer: bounded, and never blocking.

use std::sync::{Arc, atomic::AtomicU64};

use rtrb::{Consumer, Producer, RingBuffer};
use stepscope_traces::{CounterSample, MemoryEvent};

use crate::{hand_over::End, packed::PackedSpan, ticks::Ticks};

/// What goes through a queue. What this process timed itself is in ticks; its row's times are filled in by the writer.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Span(PackedSpan),
    Memory(MemoryEvent),
    TickedMemory(MemoryEvent, Ticks),
    Counter(CounterSample),
    TickedCounter(CounterSample, Ticks),
}

/// What a thread counts and the writer reads.
#[derive(Default)]
pub(crate) struct QueueCounts {
    pub(crate) dropped: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) sampled_ns: AtomicU64,
}

/// The program's end of a queue.
pub(crate) struct Queue {
    pub(crate) events: Producer<Event>,
    pub(crate) counts: Arc<QueueCounts>,
    pub(crate) capacity: usize,
}

/// The writer's end of a queue.
pub(crate) struct QueueEnd {
    pub(crate) events: Consumer<Event>,
    pub(crate) counts: Arc<QueueCounts>,
    pub(crate) bytes: usize,
}

impl End for QueueEnd {
    type Event = Event;

    fn waiting(&self) -> usize {
        self.events.slots()
    }

    fn next(&mut self) -> Option<Event> {
        self.events.pop().ok()
    }

    fn is_let_go(&self) -> bool {
        self.events.is_abandoned()
    }
}

/// Bytes a queue takes.
pub(crate) fn queue_bytes(capacity: usize) -> usize {
    capacity * size_of::<Event>()
}

/// Makes a queue, both ends of it.
pub(crate) fn queue(capacity: usize) -> (Queue, QueueEnd) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let counts = Arc::new(QueueCounts::default());
    let end = QueueEnd { events: consumer, counts: counts.clone(), bytes: queue_bytes(capacity) };
    (Queue { events: producer, counts, capacity }, end)
}
