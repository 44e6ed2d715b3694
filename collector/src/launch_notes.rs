//! Notes of launches: what the launching thread knows, on its way to the code that sees kernels run.

use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed, Release, SeqCst},
        },
    },
};

use rtrb::{Consumer, Producer, RingBuffer};
use stepscope_traces::{MemoryEvent, Nanos, now};

use crate::{
    blocking_call::BlockingCall,
    context::Context,
    launch::LaunchInfo,
    lock::lock,
    thread_state::{self, Launched},
    ticks::Ticks,
};

/// How many notes a thread can leave before they are read, which is every few milliseconds; a launch takes some
/// microseconds. Two megabytes.
const NOTES_PER_THREAD: usize = 16 << 10;
/// Every so many calls, one is timed: a clock takes longer than all the rest of a note. A prime, to keep step with nothing
/// else.
const TIMED_EVERY: u32 = 13;
/// How many threads can leave notes at the same time.
const MOST_THREADS: usize = 32;

/// What a thread leaves.
#[derive(Clone, Copy)]
enum Note {
    Launch(LaunchNote),
    Operation(OperationNote),
    Memory(MemoryNote),
    Call(CallNote),
}

/// What is known of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchNote {
    /// The number CUPTI gives the call; what it launched has the same.
    pub(crate) correlation: u32,
    /// When it was made, for the sampled ones.
    pub(crate) time: Option<Nanos>,
    pub(crate) launched: Launched,
}

/// A call that kept its thread from launching.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallNote {
    /// For which recorder the thread works, and where it is.
    pub(crate) recorder: u64,
    pub(crate) context: Context,
    pub(crate) call: BlockingCall,
    /// The number CUPTI gives it.
    pub(crate) correlation: u32,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

/// What a kernel turned out to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationNote {
    pub(crate) launch: DescribedLaunch,
    pub(crate) info: LaunchInfo,
}

/// A launch that somebody says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescribedLaunch {
    /// By the number that CUPTI gave it.
    Numbered(u32),
    /// CUPTI tells of it later: the last one of a thread, as CUPTI numbers those, before a time.
    LastOf { thread: u32, before: Nanos },
}

/// A memory event that happens between the thread's launches.
#[derive(Clone, Copy)]
pub(crate) struct MemoryNote {
    pub(crate) recorder: u64,
    /// When it was recorded; the event's own time is still to be found.
    pub(crate) time: Ticks,
    pub(crate) event: MemoryEvent,
}

/// A thread that leaves notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoteThread(pub(crate) u64);

/// What is read of a thread.
pub(crate) enum Heard {
    Launch(LaunchNote),
    Operation(OperationNote),
    Memory(MemoryNote),
    Call(CallNote),
    /// There was no room for some memory events, which were recorded without. They are among those that were read before
    /// this.
    PassedBy,
    /// It leaves no more.
    Ended,
}

/// Queues that the reader has not seen yet.
static NEW_QUEUES: Mutex<Vec<NoteQueueEnd>> = Mutex::new(Vec::new());
static OPEN_QUEUES: AtomicUsize = AtomicUsize::new(0);
static READERS: AtomicUsize = AtomicUsize::new(0);
static LOST_NOTES: AtomicU64 = AtomicU64::new(0);
/// Who reads; a forked child has its memory and not its threads.
static READING_PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static QUEUE: RefCell<Option<NoteQueue>> = const { RefCell::new(None) };
}

/// A thread's end of its queue.
struct NoteQueue {
    notes: Producer<Note>,
    /// Whether there was no room for a memory event.
    passed_by: Arc<AtomicBool>,
}

/// The reader's end.
struct NoteQueueEnd {
    thread: NoteThread,
    notes: Consumer<Note>,
    passed_by: Arc<AtomicBool>,
}

/// Leaves a note of a call that this thread makes now. Takes no lock and no memory, but for a thread's first note.
#[inline]
pub(crate) fn leave(correlation: u32, kernel: bool) {
    let Some(launched) = thread_state::launched(kernel) else { return };
    let time = correlation.is_multiple_of(TIMED_EVERY).then(now);
    push(Note::Launch(LaunchNote { correlation, time, launched }));
}

/// Leaves a note of what a kernel was that this thread has launched. It may have done so before CUPTI was let go of, and
/// then nobody waits for the note.
pub(crate) fn leave_operation(launch: DescribedLaunch, info: LaunchInfo) {
    if READERS.load(Relaxed) == 0 {
        return;
    }
    push(Note::Operation(OperationNote { launch, info }));
}

/// Leaves a note of a call that is over.
pub(crate) fn leave_call(note: CallNote) {
    push(Note::Call(note));
}

#[inline]
fn push(note: Note) {
    if with_queue(|queue| queue.notes.push(note).is_ok()) != Some(true) {
        LOST_NOTES.fetch_add(1, Relaxed);
    }
}

/// Leaves a memory event between the launches of this thread. Whether it could; else the event is to be recorded in the
/// host's time, read after this.
#[inline]
pub(crate) fn leave_memory(note: MemoryNote) -> bool {
    let left = with_queue(|queue| {
        let is_left = queue.notes.push(Note::Memory(note)).is_ok();
        if !is_left {
            queue.passed_by.store(true, Release);
        }
        is_left
    });
    left == Some(true)
}

/// Runs `action` on this thread's queue, and makes one if there is none and can be one.
#[inline]
fn with_queue<R>(action: impl FnOnce(&mut NoteQueue) -> R) -> Option<R> {
    QUEUE
        .try_with(|queue| {
            let mut queue = queue.try_borrow_mut().ok()?;
            // It belongs to a reader that is gone, if it does.
            if queue.as_ref().is_none_or(|queue| queue.notes.is_abandoned()) {
                *queue = open();
            }
            queue.as_mut().map(action)
        })
        .ok()
        .flatten()
}

#[cold]
fn open() -> Option<NoteQueue> {
    static NEXT_THREAD: AtomicU64 = AtomicU64::new(0);
    if std::process::id() != READING_PROCESS.load(Relaxed) {
        return None;
    }
    let one_more = |open: usize| (open < MOST_THREADS).then_some(open + 1);
    OPEN_QUEUES.try_update(SeqCst, SeqCst, one_more).ok()?;
    let (producer, consumer) = RingBuffer::new(NOTES_PER_THREAD);
    let (thread, passed_by) = (NoteThread(NEXT_THREAD.fetch_add(1, Relaxed)), Arc::<AtomicBool>::default());
    lock(&NEW_QUEUES).push(NoteQueueEnd { thread, notes: consumer, passed_by: passed_by.clone() });
    Some(NoteQueue { notes: producer, passed_by })
}

/// Reads the notes of all threads. There is one at a time.
pub(crate) struct NoteReader {
    queues: Vec<NoteQueueEnd>,
}

impl NoteReader {
    pub(crate) fn new() -> NoteReader {
        READING_PROCESS.store(std::process::id(), Relaxed);
        READERS.fetch_add(1, Relaxed);
        NoteReader { queues: Vec::new() }
    }

    /// Takes the notes there are now, of one thread after the other and in the order of each.
    pub(crate) fn read(&mut self, mut each: impl FnMut(NoteThread, Heard)) {
        self.queues.append(&mut lock(&NEW_QUEUES));
        self.queues.retain_mut(|NoteQueueEnd { thread, notes, passed_by }| {
            // In this order: what it leaves last is then read.
            let has_ended = notes.is_abandoned();
            let waiting = notes.slots();
            for note in std::iter::from_fn(|| notes.pop().ok()).take(waiting) {
                let heard = match note {
                    Note::Launch(note) => Heard::Launch(note),
                    Note::Operation(note) => Heard::Operation(note),
                    Note::Memory(note) => Heard::Memory(note),
                    Note::Call(note) => Heard::Call(note),
                };
                each(*thread, heard);
            }
            // After the notes: whoever left one of these had said by then what it recorded before that.
            if passed_by.swap(false, AcqRel) {
                each(*thread, Heard::PassedBy);
            }
            if has_ended {
                each(*thread, Heard::Ended);
                OPEN_QUEUES.fetch_sub(1, SeqCst);
            }
            !has_ended
        });
    }

    /// How many notes there was no room for, in the life of the process.
    pub(crate) fn lost(&self) -> u64 {
        LOST_NOTES.load(Relaxed)
    }
}

impl Drop for NoteReader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Relaxed);
        let unread = lock(&NEW_QUEUES).drain(..).count();
        OPEN_QUEUES.fetch_sub(self.queues.len() + unread, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_events_make_notes_of_launches_no_larger() {
        assert_eq!(size_of::<Note>(), size_of::<LaunchNote>());
    }
}
