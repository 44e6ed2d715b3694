//! One thread's way to the writer: a bounded queue that never blocks, and the thread's annotations.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::Thread,
};

use rtrb::{Consumer, Producer, RingBuffer};
use stepscope_traces::{CounterSample, MemoryEvent, Span};

use crate::{recorder::Shared, scope::Context, ticks::Ticks};

/// What goes through a queue. What this process timed itself is in ticks; its row's times are filled in by the writer.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Span(Span),
    TickedSpan(Span, Ticks, Ticks),
    Memory(MemoryEvent),
    TickedMemory(MemoryEvent, Ticks),
    TickedCounter(CounterSample, Ticks),
}

/// The longest queue of a thread, and the shortest when memory is short.
const MOST_EVENTS: usize = 8192;
const FEWEST_EVENTS: usize = 64;
/// A thread takes at most this share of the memory that is left for queues, so that there is always some left.
const SHARE: usize = 16;
/// Every so many events the thread measures what recording costs it.
const SAMPLE_EVERY: u32 = 1024;

/// What a thread counts and the writer reads.
#[derive(Default)]
pub(crate) struct LaneCounts {
    pub(crate) dropped: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) sampled_ns: AtomicU64,
}

/// The program's end of a queue.
struct Lane {
    recorder: u64,
    events: Producer<Event>,
    counts: Arc<LaneCounts>,
    context: Context,
    writer: Thread,
    /// Events pushed since the writer was last woken, and how many may be.
    since_wake: usize,
    wake_every: usize,
    until_sample: u32,
}

/// The writer's end of a queue.
pub(crate) struct LaneEnd {
    pub(crate) events: Consumer<Event>,
    pub(crate) counts: Arc<LaneCounts>,
    pub(crate) bytes: usize,
}

thread_local! {
    /// Nearly always one: a thread that works for several recorders has one for each.
    static LANES: RefCell<Vec<Lane>> = const { RefCell::new(Vec::new()) };
}

/// Runs `action` on this thread's lane, making one if there is none. `None` when there can be none: the thread is
/// ending, it is already recording something right now, or there is no memory left for another queue.
fn with_lane<R>(shared: &Shared, action: impl FnOnce(&mut Lane) -> R) -> Option<R> {
    LANES
        .try_with(|lanes| {
            let mut lanes = lanes.try_borrow_mut().ok()?;
            if let Some(lane) = lanes.iter_mut().find(|lane| lane.recorder == shared.id) {
                return Some(action(lane));
            }
            lanes.retain(|lane| !lane.events.is_abandoned());
            lanes.push(Lane::open(shared)?);
            lanes.last_mut().map(action)
        })
        .ok()
        .flatten()
}

/// Sends an event to the writer, or counts it as dropped.
#[inline]
pub(crate) fn push(shared: &Shared, make: impl FnOnce(&Context) -> Event) {
    if with_lane(shared, |lane| lane.push(shared, make(&lane.context))).is_none() {
        shared.dropped.fetch_add(1, Relaxed);
    }
}

/// The annotations of this thread.
pub(crate) fn context(shared: &Shared) -> Context {
    with_lane(shared, |lane| lane.context).unwrap_or_default()
}

/// Sets the annotations of this thread and returns those it had.
pub(crate) fn replace_context(shared: &Shared, change: impl FnOnce(Context) -> Context) -> Context {
    with_lane(shared, |lane| {
        let before = lane.context;
        lane.context = change(before);
        before
    })
    .unwrap_or_default()
}

impl Lane {
    fn open(shared: &Shared) -> Option<Lane> {
        let (capacity, bytes) = shared.take_queue_memory(|free| {
            let events = (free / SHARE / size_of::<Event>()).clamp(FEWEST_EVENTS, MOST_EVENTS);
            (events, events * size_of::<Event>())
        })?;
        let (producer, consumer) = RingBuffer::new(capacity);
        let counts = Arc::new(LaneCounts::default());
        let writer = shared.add_lane(LaneEnd { events: consumer, counts: counts.clone(), bytes })?;
        Some(Lane {
            recorder: shared.id,
            events: producer,
            counts,
            context: Context::default(),
            writer,
            since_wake: 0,
            wake_every: capacity / 4,
            until_sample: SAMPLE_EVERY,
        })
    }

    #[inline]
    fn push(&mut self, shared: &Shared, event: Event) {
        self.until_sample -= 1;
        let began = (self.until_sample == 0).then(|| shared.counter.read());
        if self.events.push(event).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
        self.since_wake += 1;
        if self.since_wake >= self.wake_every {
            self.since_wake = 0;
            self.writer.unpark();
        }
        if let Some(began) = began {
            self.until_sample = SAMPLE_EVERY;
            self.counts.samples.fetch_add(1, Relaxed);
            let cost = shared.counter.read().nanos_since(began, &shared.counter);
            self.counts.sampled_ns.fetch_add(cost, Relaxed);
        }
    }
}
