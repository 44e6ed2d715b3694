//! Our thread that reads the history of PyTorch's allocator, and what all of this costs.
//!
//! Each reading has all events that PyTorch keeps, new or not, so it takes the same time however few are new. It comes so
//! often that it takes little of a processor ([`USUAL_REST`]), and more often if events would be lost otherwise, within a bound
//! ([`LEAST_REST`]).

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use stepscope_collector::{Recorder, quiet_thread};
use stepscope_traces::{
    ClockSnapshot, CollectorNote, FollowedMemory, MemoryCategories, MemoryTimes, Taken, TorchMemory, TorchNotes,
};

use super::{inbox, native::Snapshots};
use crate::recording::recorder;

/// How often the thread looks whether it is time.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long after a reading comes the next, at the least and at the most.
const READ_EVERY: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];
/// After a reading the thread rests this many times as long, so it uses 2% of a CPU core.
const USUAL_REST: u32 = 49;
/// If events would be lost, it has 10%.
const LEAST_REST: u32 = 9;
/// So much of what PyTorch keeps may be new.
const MOST_NEW: f64 = 0.6;
/// How often the recording says what it costs so far.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How long a program that ends waits for a reading that goes on.
const PATIENCE: Duration = Duration::from_secs(3);

static FOLLOW: Mutex<Option<Follow>> = Mutex::new(None);
static THREAD: OnceLock<Thread> = OnceLock::new();
/// Whether there is something to read with.
static ABLE: AtomicBool = AtomicBool::new(false);
/// How many events PyTorch keeps; none while it keeps no history.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// Whether something was read.
static READ: AtomicBool = AtomicBool::new(false);
/// Why nothing more is.
static REFUSAL: Mutex<Option<TorchMemory>> = Mutex::new(None);
/// Whether what is read now is recorded.
static WINDOW: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);
/// What the module has taken on the program's threads.
static SPENT_NS: AtomicU64 = AtomicU64::new(0);

/// Whether memory can be recorded.
pub(super) fn is_able() -> bool {
    ABLE.load(Acquire)
}

/// Whether PyTorch keeps a history.
pub(super) fn is_history_on() -> bool {
    KEPT.load(Acquire) > 0
}

/// Adds what the module has taken.
pub(super) fn add_cost(spent_ns: u64) {
    SPENT_NS.fetch_add(spent_ns, Relaxed);
}

/// Says that a window is open, and a recording is there.
pub(super) fn window_is_open() {
    WINDOW.store(true, Release);
    note_refusal();
}

/// Records what is left of a window.
pub(super) fn close_window() {
    read_rest();
    WINDOW.store(false, Release);
}

/// Gets ready to read the history of this version of PyTorch.
pub(super) fn begin(version: String) {
    let snapshots = match Snapshots::find() {
        Ok(snapshots) => snapshots,
        Err(why) => return refuse(&format!("PyTorch {version} {why}")),
    };
    *lock() = Some(Follow {
        snapshots,
        version,
        memory: FollowedMemory::default(),
        began: Instant::now(),
        noted: None,
        read: None,
        costs: Costs::default(),
    });
    match quiet_thread::spawn("stepscope-torch", run) {
        Ok(thread) => {
            drop(THREAD.set(thread.thread().clone()));
            ABLE.store(true, Release);
        }
        Err(error) => refuse(&format!("cannot start a thread: {error}")),
    }
}

/// Ends this, and notes why memory is not recorded.
pub(super) fn refuse(why: &str) {
    ABLE.store(false, Release);
    KEPT.store(0, Release);
    let why = why.to_owned();
    let refusal = if READ.load(Acquire) { TorchMemory::InPart { why } } else { TorchMemory::NotRecorded { why } };
    *REFUSAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
    note_refusal();
}

fn note_refusal() {
    let refusal = REFUSAL.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let (Some(refusal), Some(recorder)) = (refusal, recorder()) {
        recorder.note(CollectorNote::Torch(TorchNotes::of_state(refusal)));
    }
}

/// Starts reading; PyTorch keeps this many events.
pub(super) fn history_is_on(events: u64) {
    inbox::begin_anew();
    KEPT.store(events, Release);
    THREAD.get().into_iter().for_each(Thread::unpark);
}

/// Reads what is left, before PyTorch forgets it.
pub(super) fn history_goes_off() {
    read_rest();
    KEPT.store(0, Release);
}

/// Reads what is left, and says what it all cost: the program ends.
pub(crate) fn end() {
    if !ENDED.swap(true, AcqRel) {
        read_rest();
        ABLE.store(false, Release);
        KEPT.store(0, Release);
    }
}

fn lock() -> MutexGuard<'static, Option<Follow>> {
    FOLLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a reading that goes on, for a while.
fn lock_patiently() -> Option<MutexGuard<'static, Option<Follow>>> {
    let began = Instant::now();
    loop {
        match FOLLOW.try_lock() {
            Ok(follow) => return Some(follow),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn read_rest() {
    if is_history_on()
        && WINDOW.load(Acquire)
        && let Some(mut follow) = lock_patiently()
    {
        follow.iter_mut().for_each(|follow| follow.read(Rest::Told));
    }
}

/// The thread.
fn run() {
    while !ENDED.load(Acquire) {
        thread::park_timeout(if is_history_on() { LOOK_EVERY } else { READ_EVERY[1] });
        if is_history_on() && is_able() && WINDOW.load(Acquire) {
            let mut follow = lock();
            // It may have ended meanwhile, or the window closed.
            let still = is_history_on() && WINDOW.load(Acquire) && !ENDED.load(Acquire);
            follow.iter_mut().filter(|follow| still && follow.is_due()).for_each(|follow| follow.read(Rest::Waits));
        }
    }
}

/// What becomes of a step that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It waits for its end.
    Waits,
    /// There is no more to wait for.
    Told,
}

struct Follow {
    snapshots: Snapshots,
    version: String,
    memory: FollowedMemory,
    began: Instant,
    /// When the recording was told what this costs.
    noted: Option<Instant>,
    read: Option<Reading>,
    costs: Costs,
}

/// The last reading.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ended: Instant,
    /// How long until the next.
    rest: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    readings: u64,
    busy: Duration,
    /// Those that had lost events.
    gaps: u64,
    other_devices: usize,
}

impl Follow {
    fn is_due(&self) -> bool {
        self.read.is_none_or(|reading| reading.ended.elapsed() >= reading.rest)
    }

    fn read(&mut self, rest: Rest) {
        let Some(recorder) = recorder() else { return };
        let began = Instant::now();
        let clock = ClockSnapshot::take();
        let memory = &mut self.memory;
        let outcome = self.snapshots.read(|pickle| {
            // After it was written: what happened until then is all there.
            inbox::take().give_to(memory);
            memory.take(pickle, clock)
        });
        match outcome {
            Ok(Ok((taken, told))) => {
                recorder.record_memory_waiting(told);
                let told = if rest == Rest::Told { self.memory.tell_rest() } else { self.memory.tell() };
                recorder.record_memory_waiting(told);
                let since = self.read.map_or(self.began, |reading| reading.ended);
                READ.store(true, Release);
                self.costs.add(taken, began.elapsed());
                self.read = Some(Reading::after(taken, began.elapsed(), since.elapsed()));
                // Of a program that has no memory left this may be the last reading.
                if rest == Rest::Told || taken.ran_out || self.noted.is_none_or(|noted| noted.elapsed() > NOTE_EVERY) {
                    self.note(recorder);
                }
            }
            Ok(Err(error)) => refuse(&format!("cannot read the memory history of PyTorch {}: {error}", self.version)),
            Err(thrown) => {
                refuse(&format!("PyTorch {} threw {thrown} when asked for its memory history", self.version))
            }
        }
    }

    fn note(&mut self, recorder: &Recorder) {
        self.noted = Some(Instant::now());
        let Costs { readings, busy, gaps, other_devices } = self.costs;
        let nanos = |time: Duration| Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let notes = TorchNotes {
            cost_ns: Some(SPENT_NS.load(Relaxed)),
            beside_ns: nanos(busy),
            time_ns: nanos(self.began.elapsed()),
            readings: Some(readings),
            gaps: Some(gaps),
            other_devices: (other_devices > 0).then_some(other_devices as u64),
            ..TorchNotes::recorded(&self.version)
        };
        recorder.note(CollectorNote::Torch(notes));
        recorder.note(CollectorNote::MemoryCategories(MemoryCategories::Inferred));
        recorder.note(CollectorNote::MemoryTimes(MemoryTimes::Host { why: None }));
        if let Some(shortage) = self.memory.out_of_memory() {
            recorder.note(CollectorNote::OutOfMemory(shortage.clone()));
        }
    }
}

impl Costs {
    fn add(&mut self, taken: Taken, took: Duration) {
        self.readings += 1;
        self.busy += took;
        self.gaps += u64::from(taken.gap);
        self.other_devices = taken.other_devices;
    }
}

impl Reading {
    /// When to read again after a reading: how long it took, and how long before it the last one was.
    fn after(taken: Taken, took: Duration, since: Duration) -> Reading {
        let per_second = taken.new as f64 / since.as_secs_f64().max(1e-3);
        let fills = MOST_NEW * KEPT.load(Relaxed) as f64 / per_second.max(1e-9);
        let fills = Duration::try_from_secs_f64(fills).unwrap_or(READ_EVERY[1]);
        let rest = (took * USUAL_REST).min(fills).max(took * LEAST_REST);
        Reading { ended: Instant::now(), rest: rest.clamp(READ_EVERY[0], READ_EVERY[1]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_as_often_as_they_must_and_may() {
        KEPT.store(1000, Relaxed);
        let (second, millis) = (Duration::from_secs(1), Duration::from_millis);
        let rest = |new, took| {
            let taken = Taken { new, ..Taken::default() };
            Reading::after(taken, took, second).rest
        };
        assert_eq!(rest(0, millis(1)), millis(250), "never without a pause");
        assert_eq!(rest(0, millis(100)), millis(4900), "it usually has 2%");
        assert_eq!(rest(300, millis(100)), millis(2000), "more if events would be lost");
        assert_eq!(rest(1000, millis(100)), millis(900), "and 10% at the most");
        assert_eq!(rest(0, second * 60), second * 10, "what takes so long will not be so for ever");
        KEPT.store(0, Relaxed);
    }

    #[test]
    fn without_pytorch_nothing_is_read() {
        begin("0".into());
        assert!(!is_able() && !is_history_on());
        end();
    }
}
