//! What the program's threads and the writer thread share.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
    thread::Thread,
};

use stepscope_traces::{CollectorNote, Device, GpuSlot, Membership, Nanos, Phase, Stream};

use crate::{
    aside::Aside,
    communication::Communication,
    launch::WatchedLaunches,
    lock::lock,
    names::NameBook,
    process_context,
    queue::{Queue, QueueEnd, queue, queue_bytes},
    settings::Settings,
    ticks::TickCounter,
};

/// How a recording is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ending {
    NotYet,
    Complete,
    Abandoned,
}

/// What the program's threads and the writer thread share.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) counter: TickCounter,
    /// The process that records; a forked child has all this memory, but not the writer thread.
    process: u32,
    /// Whether nothing is recorded for now.
    pub(crate) paused: AtomicBool,
    /// False once nothing is recorded any more.
    pub(crate) accepting: AtomicBool,
    /// Whether the recording ended early.
    pub(crate) failed: AtomicBool,
    pub(crate) ending: AtomicU8,
    names: Mutex<NameBook>,
    new_queues: Mutex<NewQueues>,
    /// What is to stand in `rank.json` and is not there yet.
    notes: Mutex<Vec<CollectorNote>>,
    /// What the rank computes on, if that is not written yet.
    device: Mutex<Option<Device>>,
    /// Where its GPU is, if that is not written yet.
    gpu_slot: Mutex<Option<GpuSlot>>,
    /// The groups it is in, if that is not written yet.
    memberships: Mutex<Vec<Membership>>,
    /// Why the program ends, if it said so.
    pub(crate) reason: Mutex<Option<String>>,
    threads: AtomicU32,
    queue_bytes_left: AtomicUsize,
    /// Events dropped because a thread had no queue, or before they came to one.
    pub(crate) dropped: AtomicU64,
    pub(crate) launches: WatchedLaunches,
    pub(crate) communication: Communication,
    pub(crate) aside: Aside,
    /// What else is to be asked when somebody asks where this rank is.
    pub(crate) when_asked: Mutex<Option<WhenAsked>>,
}

/// Is told when that was asked, and tells whether Python is going to say where it is.
pub(crate) type WhenAsked = Box<dyn Fn(Nanos) -> bool + Send>;

/// Queues the writer has not seen yet, and the writer to wake.
#[derive(Default)]
struct NewQueues {
    queues: Vec<QueueEnd>,
    writer: Option<Thread>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Shared {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Shared {
            id: NEXT.fetch_add(1, Relaxed),
            counter: TickCounter::new(),
            process: std::process::id(),
            paused: AtomicBool::new(false),
            accepting: AtomicBool::new(true),
            failed: AtomicBool::new(false),
            ending: AtomicU8::new(Ending::NotYet as u8),
            names: Mutex::new(NameBook::new()),
            new_queues: Mutex::default(),
            notes: Mutex::default(),
            device: Mutex::default(),
            gpu_slot: Mutex::default(),
            memberships: Mutex::default(),
            reason: Mutex::default(),
            threads: AtomicU32::new(0),
            queue_bytes_left: AtomicUsize::new(settings.queue_bytes),
            dropped: AtomicU64::new(0),
            launches: WatchedLaunches::default(),
            communication: Communication::default(),
            aside: Aside::default(),
            when_asked: Mutex::default(),
        }
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, NameBook> {
        lock(&self.names)
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.ending.load(Acquire) {
            ending if ending == Ending::Complete as u8 => Ending::Complete,
            ending if ending == Ending::Abandoned as u8 => Ending::Abandoned,
            _ => Ending::NotYet,
        }
    }

    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.accepting.load(Relaxed) && !self.paused.load(Relaxed)
    }

    /// What the rank does instead of training now.
    pub(crate) fn now_aside(&self) -> Option<Phase> {
        let process = process_context::get().filter(|(recorder, _)| *recorder == self.id);
        self.aside.now(process.and_then(|(_, process)| process.phase))
    }

    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    pub(crate) fn next_thread(&self) -> Stream {
        Stream(self.threads.fetch_add(1, Relaxed))
    }

    /// Opens a queue that takes at most this share of the memory that is left for queues, and hands its other end to
    /// the writer.
    pub(crate) fn open_queue(&self, capacity: usize, share: usize) -> Option<Queue> {
        if self.is_forked() {
            // The lock below may have been held by a thread that this process does not have.
            return None;
        }
        let bytes = queue_bytes(capacity);
        let take = |left: usize| (bytes <= left / share).then(|| left - bytes);
        if self.queue_bytes_left.try_update(Relaxed, Relaxed, take).is_err() {
            // The writer may have the queues of threads that have ended to give back.
            self.writer().iter().for_each(Thread::unpark);
            return None;
        }
        let (queue, end) = queue(capacity);
        lock(&self.new_queues).queues.push(end);
        Some(queue)
    }

    pub(crate) fn return_queue_memory(&self, bytes: usize) {
        self.queue_bytes_left.fetch_add(bytes, Relaxed);
    }

    /// Whom to wake. Nobody, in a forked child.
    pub(crate) fn writer(&self) -> Option<Thread> {
        if self.is_forked() { None } else { lock(&self.new_queues).writer.clone() }
    }

    pub(crate) fn set_writer(&self, writer: Thread) {
        lock(&self.new_queues).writer = Some(writer);
    }

    /// Leaves a note for `rank.json`.
    pub(crate) fn note(&self, note: CollectorNote) {
        if !self.is_forked() {
            lock(&self.notes).push(note);
        }
    }

    pub(crate) fn take_notes(&self) -> Vec<CollectorNote> {
        std::mem::take(&mut lock(&self.notes))
    }

    /// Leaves what the rank computes on for `rank.json`.
    pub(crate) fn set_device(&self, device: Device) {
        if !self.is_forked() {
            *lock(&self.device) = Some(device);
        }
    }

    pub(crate) fn take_device(&self) -> Option<Device> {
        lock(&self.device).take()
    }

    /// Leaves where the rank's GPU is for `rank.json`.
    pub(crate) fn set_gpu_slot(&self, slot: GpuSlot) {
        if !self.is_forked() {
            *lock(&self.gpu_slot) = Some(slot);
        }
    }

    pub(crate) fn take_gpu_slot(&self) -> Option<GpuSlot> {
        lock(&self.gpu_slot).take()
    }

    /// Leaves a group the rank is in for `rank.json`.
    pub(crate) fn join_group(&self, membership: Membership) {
        if !self.is_forked() {
            lock(&self.memberships).push(membership);
        }
    }

    pub(crate) fn take_memberships(&self) -> Vec<Membership> {
        std::mem::take(&mut lock(&self.memberships))
    }

    pub(crate) fn take_new_queues(&self) -> Vec<QueueEnd> {
        std::mem::take(&mut lock(&self.new_queues).queues)
    }
}
