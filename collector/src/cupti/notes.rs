//! Notes of launches: what the thread that launches knows, on its way to where the records are read.

use std::{
    cell::RefCell,
    sync::{
        Mutex,
        atomic::{
            AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use rtrb::{Consumer, Producer, RingBuffer};
use stepscope_traces::{Nanos, now};

use crate::{
    lane::{self, Launched},
    shared::lock,
};

/// How many notes a thread can leave before they are read, which is every few milliseconds; a launch takes some
/// microseconds. Two megabytes.
const NOTES_PER_THREAD: usize = 16 << 10;
/// Every so many calls, one is timed: a clock takes longer than all the rest of a note. A prime, to keep step with nothing
/// else.
const TIMED_EVERY: u32 = 13;
/// How many threads can leave notes at the same time.
const MOST_THREADS: usize = 32;

/// What is known of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// The number CUPTI gives the call; what it launched has the same.
    pub(crate) correlation: u32,
    /// When it was made, of every so many.
    pub(crate) time: Option<Nanos>,
    pub(crate) launched: Launched,
}

/// Queues that the reader has not seen yet.
static NEW_QUEUES: Mutex<Vec<Consumer<Note>>> = Mutex::new(Vec::new());
static OPEN_QUEUES: AtomicUsize = AtomicUsize::new(0);
static LOST_NOTES: AtomicU64 = AtomicU64::new(0);
/// Who reads; a forked child has its memory and not its threads.
static READING_PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static QUEUE: RefCell<Option<Producer<Note>>> = const { RefCell::new(None) };
}

/// Leaves a note of a call that this thread makes now. Takes no lock and no memory, but for a thread's first note.
#[inline]
pub(crate) fn leave(correlation: u32, kernel: bool) {
    let Some(launched) = lane::launched(kernel) else { return };
    let time = correlation.is_multiple_of(TIMED_EVERY).then(now);
    let note = Note { correlation, time, launched };
    let left = QUEUE.try_with(|queue| {
        let mut queue = queue.try_borrow_mut().ok()?;
        // It belongs to a reader that is gone, if it does.
        if queue.as_ref().is_none_or(Producer::is_abandoned) {
            *queue = open();
        }
        queue.as_mut()?.push(note).ok()
    });
    if left.ok().flatten().is_none() {
        LOST_NOTES.fetch_add(1, Relaxed);
    }
}

#[cold]
fn open() -> Option<Producer<Note>> {
    if std::process::id() != READING_PROCESS.load(Relaxed) {
        return None;
    }
    let one_more = |open: usize| (open < MOST_THREADS).then_some(open + 1);
    OPEN_QUEUES.try_update(SeqCst, SeqCst, one_more).ok()?;
    let (producer, consumer) = RingBuffer::new(NOTES_PER_THREAD);
    lock(&NEW_QUEUES).push(consumer);
    Some(producer)
}

/// Reads the notes of all threads. There is one at a time.
pub(crate) struct NoteReader {
    queues: Vec<Consumer<Note>>,
}

impl NoteReader {
    pub(crate) fn new() -> NoteReader {
        READING_PROCESS.store(std::process::id(), Relaxed);
        NoteReader { queues: Vec::new() }
    }

    /// Takes the notes there are now.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Note)) {
        self.queues.append(&mut lock(&NEW_QUEUES));
        for queue in &mut self.queues {
            let waiting = queue.slots();
            std::iter::from_fn(|| queue.pop().ok()).take(waiting).for_each(&mut each);
        }
        self.queues.retain(|queue| {
            let ended = queue.is_abandoned() && queue.is_empty();
            if ended {
                OPEN_QUEUES.fetch_sub(1, SeqCst);
            }
            !ended
        });
    }

    /// How many notes there was no room for, in the life of the process.
    pub(crate) fn lost(&self) -> u64 {
        LOST_NOTES.load(Relaxed)
    }
}

impl Drop for NoteReader {
    fn drop(&mut self) {
        let unread = lock(&NEW_QUEUES).drain(..).count();
        OPEN_QUEUES.fetch_sub(self.queues.len() + unread, SeqCst);
    }
}
