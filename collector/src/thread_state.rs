//! What a thread of the program has of its own: its queue to the writer, and its annotations.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::Duration,
};

use rtrb::PushError;
use stepscope_traces::{Phase, Step, Stream};

use crate::{
    context::{Change, Context},
    launch::{Guard, LaunchInfo, OpenLaunch},
    process_context,
    queue::{Event, Queue},
    shared::Shared,
};

/// How many events a thread's first queue holds, or where memory is short; a full one is replaced by a longer one.
const FIRST_EVENTS: [usize; 2] = [256, 32];
const GROWTH: usize = 4;
const MOST_EVENTS: usize = 64 << 10;
/// The thread wakes the writer once per this many events; a shorter queue grows.
const EVENTS_PER_WAKE: usize = 2048;
/// The thread measures the cost of recording once per this many events. A prime, so that it never aligns with the program's own rhythm.
const SAMPLE_EVERY: u32 = 1021;
/// How long a thread that may wait does so before it looks for room again.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(1);

/// A thread's queue and annotations, for one recorder.
struct ThreadState {
    recorder: u64,
    /// The thread, as annotations name it.
    thread: Stream,
    queue: Queue,
    writer: Thread,
    /// Open annotations, and what they come to.
    scopes: Vec<(u64, Change)>,
    context: Context,
    next_scope: u64,
    /// What is launched now.
    launch: OpenLaunch,
    last_guard: Guard,
    /// Events until the writer is woken, which is not for nothing.
    until_wake: usize,
    until_sample: u32,
    /// Whether to try for a longer queue when this one is full.
    may_grow: bool,
}

thread_local! {
    /// Nearly always one: a thread that works for several recorders has one for each.
    static THREAD_STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
}

/// Of threads that are ending and have none of their own any more: what they leave open ends with them.
static OF_ENDING_THREADS: Mutex<Vec<ThreadState>> = Mutex::new(Vec::new());

/// Runs `action` on this thread's state, making one if there is none. `None` when there can be none: the thread is already
/// recording something right now, another one that is ending is, or there is no memory left for another queue.
fn with_state<R>(shared: &Shared, action: impl FnOnce(&mut ThreadState) -> R) -> Option<R> {
    if THREAD_STATES.try_with(|_| ()).is_ok() {
        THREAD_STATES.with(|states| find_or_open(&mut *states.try_borrow_mut().ok()?, shared).map(action))
    } else {
        // Not waited for: in a forked child, whoever holds it may not be there.
        find_or_open(&mut *OF_ENDING_THREADS.try_lock().ok()?, shared).map(action)
    }
}

fn find_or_open<'a>(states: &'a mut Vec<ThreadState>, shared: &Shared) -> Option<&'a mut ThreadState> {
    if let Some(at) = states.iter().position(|state| state.recorder == shared.id) {
        return states.get_mut(at);
    }
    states.retain(|state| !state.queue.events.is_abandoned());
    states.push(ThreadState::open(shared)?);
    states.last_mut()
}

/// Sends an event to the writer, or counts it as dropped. It is made from where this thread is, and which one it is.
#[inline]
pub(crate) fn push(shared: &Shared, make: impl FnOnce(&Context, Stream) -> Event) {
    if with_state(shared, |state| state.push(shared, make(&state.context, state.thread))).is_none() {
        shared.dropped.fetch_add(1, Relaxed);
    }
}

/// Sends an event to the writer, and waits for room: for threads of the collector's own.
pub(crate) fn push_waiting(shared: &Shared, event: Event) {
    if with_state(shared, |state| state.push_waiting(shared, event)) != Some(true) {
        shared.dropped.fetch_add(1, Relaxed);
    }
}

/// Says what this thread launches next, and tells what was said before. `None` when the thread has no state.
pub(crate) fn open_launch(shared: &Shared, info: LaunchInfo) -> Option<OpenLaunch> {
    with_state(shared, |state| {
        state.last_guard = state.last_guard.next();
        std::mem::replace(&mut state.launch, OpenLaunch { guard: Some(state.last_guard), info: Some(info) })
    })
}

/// Goes back to what was said before.
pub(crate) fn close_launch(shared: &Shared, outer: OpenLaunch) {
    with_state(shared, |state| state.launch = outer);
}

/// What is known of a launch that this thread makes now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launched {
    /// For which recorder the thread works.
    pub(crate) recorder: u64,
    pub(crate) context: Context,
    /// Under which guard it is made.
    pub(crate) guard: Option<Guard>,
    /// What the guard says, with the first launch that it is meant for.
    pub(crate) info: Option<LaunchInfo>,
    /// Which launch of its thread it is, where that is known.
    pub(crate) position: Option<LaunchPosition>,
}

/// Which launch of a thread something is: steps that repeat each other have the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaunchPosition {
    /// The thread, by a number of ours.
    thread: u32,
    phase: Option<Phase>,
    /// Which of its kernels since this phase of this step began.
    number: u32,
}

thread_local! {
    /// The number of this thread, and where it was when it launched its last kernel.
    static LAST_LAUNCH: Cell<Option<(Option<Step>, LaunchPosition)>> = const { Cell::new(None) };
}

impl LaunchPosition {
    /// Some place, for a test.
    #[cfg(test)]
    pub(crate) fn of_test(thread: u32, phase: Option<Phase>, number: u32) -> LaunchPosition {
        LaunchPosition { thread, phase, number }
    }

    /// That of a kernel which this thread launches now, in a step and phase.
    fn next(step: Option<Step>, phase: Option<Phase>) -> Option<LaunchPosition> {
        static THREADS: AtomicU32 = AtomicU32::new(0);
        LAST_LAUNCH
            .try_with(|last| {
                let next = match last.get() {
                    Some((same, before)) if (same, before.phase) == (step, phase) => {
                        LaunchPosition { number: before.number.wrapping_add(1), ..before }
                    }
                    before => {
                        let thread = before.map_or_else(|| THREADS.fetch_add(1, Relaxed), |(_, before)| before.thread);
                        LaunchPosition { thread, phase, number: 0 }
                    }
                };
                last.set(Some((step, next)));
                next
            })
            .ok()
    }
}

/// What is known of a launch of a kernel, or else of a copy or a fill, that this thread makes now. `None` when it works
/// for no recorder, and nothing is said of all threads. Takes no lock and no memory.
pub(crate) fn launched(kernel: bool) -> Option<Launched> {
    let launched = placed(|info| info.is_for(kernel))?;
    let Context { step, phase, .. } = launched.context;
    let position = if kernel { LaunchPosition::next(step, phase) } else { None };
    Some(Launched { position, ..launched })
}

/// What is known of a call that launches nothing. Takes no lock and no memory.
pub(crate) fn calling() -> Option<Launched> {
    placed(|_| false)
}

/// Where this thread is, and what it says of what is launched, if that is `meant`.
fn placed(meant: impl Fn(&LaunchInfo) -> bool) -> Option<Launched> {
    let launched = said_here(meant);
    Some(match (process_context::get(), launched) {
        (None, launched) => launched?,
        (Some((recorder, process)), Some(launched)) if launched.recorder == recorder => {
            Launched { context: process.unless_said(launched.context), ..launched }
        }
        (Some(_), Some(launched)) => launched,
        (Some((recorder, process)), None) => {
            Launched { recorder, context: process.context(), guard: None, info: None, position: None }
        }
    })
}

/// What this thread itself says of a launch that it makes now.
fn said_here(meant: impl Fn(&LaunchInfo) -> bool) -> Option<Launched> {
    THREAD_STATES
        .try_with(|states| {
            let mut states = states.try_borrow_mut().ok()?;
            let state = states.iter_mut().rev().find(|state| !state.queue.events.is_abandoned())?;
            let info = state.launch.info.take_if(|info| meant(info));
            Some(Launched {
                recorder: state.recorder,
                context: state.context,
                guard: state.launch.guard,
                info,
                position: None,
            })
        })
        .ok()
        .flatten()
}

/// The annotations of this thread.
pub(crate) fn context(shared: &Shared) -> Context {
    with_state(shared, |state| state.context).unwrap_or_default()
}

/// Opens an annotation on this thread: its number, and what all of them now come to.
pub(crate) fn open_scope(shared: &Shared, change: Change) -> Option<(u64, Context, Stream)> {
    with_state(shared, |state| {
        state.next_scope += 1;
        state.scopes.push((state.next_scope, change));
        state.context = change.apply(state.context);
        (state.next_scope, state.context, state.thread)
    })
}

/// Closes an annotation, whether or not it is the one that was opened last.
pub(crate) fn close_scope(shared: &Shared, number: u64) {
    with_state(shared, |state| {
        state.scopes.retain(|(other, _)| *other != number);
        state.context = state.scopes.iter().fold(Context::default(), |context, (_, change)| change.apply(context));
    });
}

impl ThreadState {
    fn open(shared: &Shared) -> Option<ThreadState> {
        let writer = shared.writer()?;
        let queue = FIRST_EVENTS.into_iter().find_map(|events| shared.open_queue(events, 1))?;
        let thread = shared.next_thread();
        Some(ThreadState {
            recorder: shared.id,
            thread,
            queue,
            writer,
            scopes: Vec::new(),
            context: Context::default(),
            next_scope: 0,
            launch: OpenLaunch::default(),
            last_guard: Guard::before_first(thread.0),
            until_wake: EVENTS_PER_WAKE,
            until_sample: SAMPLE_EVERY,
            may_grow: true,
        })
    }

    #[inline]
    fn push(&mut self, shared: &Shared, event: Event) {
        self.until_sample -= 1;
        let began = (self.until_sample == 0).then(|| shared.counter.read());
        if let Err(PushError::Full(event)) = self.queue.events.push(event) {
            self.push_to_longer_queue(shared, event);
        }
        self.until_wake -= 1;
        if self.until_wake == 0 {
            self.until_wake = EVENTS_PER_WAKE;
            self.may_grow = true;
            self.writer.unpark();
        }
        if let Some(began) = began {
            self.until_sample = SAMPLE_EVERY;
            self.queue.counts.samples.fetch_add(1, Relaxed);
            let cost = shared.counter.read().nanos_since(began, &shared.counter);
            self.queue.counts.sampled_ns.fetch_add(cost, Relaxed);
        }
    }

    /// Whether it could be sent before the recording ended.
    fn push_waiting(&mut self, shared: &Shared, mut event: Event) -> bool {
        while let Err(PushError::Full(back)) = self.queue.events.push(event) {
            if !shared.accepting.load(Relaxed) || shared.is_forked() {
                return false;
            }
            event = back;
            if !self.lengthen(shared) {
                self.writer.unpark();
                thread::sleep(WAIT_FOR_ROOM);
            }
        }
        true
    }

    /// The writer takes what the full queue holds before it takes anything from the longer one.
    #[cold]
    fn push_to_longer_queue(&mut self, shared: &Shared, event: Event) {
        if self.may_grow && self.queue.capacity < MOST_EVENTS && !self.lengthen(shared) {
            // Then it has to be emptied in time.
            self.may_grow = false;
            self.until_wake = self.until_wake.min(self.queue.capacity / 2);
        }
        if self.queue.events.push(event).is_err() {
            self.queue.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Whether there is a longer queue now.
    fn lengthen(&mut self, shared: &Shared) -> bool {
        let capacity = (self.queue.capacity * GROWTH).min(MOST_EVENTS);
        // Half of what is left at most: other threads may need the rest.
        let longer = (capacity > self.queue.capacity).then(|| shared.open_queue(capacity, 2)).flatten();
        longer.map(|longer| self.queue = longer).is_some()
    }
}
