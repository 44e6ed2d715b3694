//! The thread that reads what CUPTI hands over.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use stepscope_traces::{Nanos, now};

use super::{
    buffers::{BUFFERS, Filled},
    clock::ClockReading,
    library,
    records::{self, Record},
    traced::Traced,
    translator::Translator,
};
use crate::{lock::lock, shared::Shared};

/// How often the clocks and notes of launches are read; a thread leaves far fewer in this time than fit.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long CUPTI may hand nothing over before it is asked for what is complete. Asking makes launches wait, and a busy
/// program fills buffers without it.
const FLUSH_EVERY: Duration = Duration::from_millis(250);
/// How often streams are looked for on which nothing runs any more.
const QUIET_EVERY: Duration = Duration::from_millis(100);

/// How long the thread sleeps at a time while CUPTI is away.
const REST_FOR: Duration = Duration::from_millis(500);
/// How long the records of a buffer wait for those of the calls that launched them, which may be in one that comes later.
const CALLS_COME_WITHIN: Nanos = Nanos(500_000_000);

/// How launches become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchesBy {
    /// Notes of the threads that launch.
    Notes,
    /// Records of their calls, which come later.
    Records,
}

/// CUPTI, attached to this process.
pub(crate) struct Session {
    translator: Mutex<Translator>,
    launches_by: LaunchesBy,
    pub(crate) traced: Traced,
    /// Whether CUPTI is away for a while. Changed only by whoever has the translator.
    rests: AtomicBool,
    /// Buffers that wait for records of calls, and since when.
    waiting: Mutex<VecDeque<(Nanos, Filled)>>,
    pub(crate) ending: AtomicBool,
}

impl Session {
    pub(crate) fn new(launches_by: LaunchesBy, traced: Traced) -> Session {
        Session {
            translator: Mutex::new(Translator::new()),
            launches_by,
            traced,
            rests: AtomicBool::new(false),
            waiting: Mutex::default(),
            ending: AtomicBool::new(false),
        }
    }

    pub(crate) fn translator(&self) -> MutexGuard<'_, Translator> {
        lock(&self.translator)
    }

    /// Adds a recorder, unless it is there already. If it ends before it leaves, it gets what waits here first.
    pub(crate) fn listen(self: &Arc<Session>, shared: &Arc<Shared>) -> bool {
        let is_new = self.translator().listen(shared);
        if is_new {
            let (session, recording) = (Arc::downgrade(self), Arc::downgrade(shared));
            let end_order = move || {
                if let (Some(session), Some(recording)) = (session.upgrade(), recording.upgrade()) {
                    session.translator().end_order(&recording);
                }
            };
            *lock(&shared.launches.before_end) = Some(Box::new(end_order));
        }
        is_new
    }

    /// Records all there is, and says that CUPTI is not to be asked for anything until the session goes on.
    pub(crate) fn rest(&self) {
        library::flush(true);
        self.drain_all();
        let mut translator = self.translator();
        translator.forget_launches();
        self.rests.store(true, Release);
    }

    pub(crate) fn go_on(&self) {
        let translator = self.translator();
        self.rests.store(false, Release);
        drop(translator);
        // The first reading of the clocks, before the first kernel.
        self.drain();
    }

    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Acquire)
    }

    /// Reads what comes until it is told to end.
    pub(crate) fn run(&self) {
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        while !self.ending.load(Acquire) {
            thread::park_timeout(LOOK_EVERY);
            if self.rests() {
                if !self.ending.load(Acquire) {
                    thread::park_timeout(REST_FOR);
                }
                continue;
            }
            if heard.elapsed() >= FLUSH_EVERY {
                self.flush();
                heard = Instant::now();
            }
            if self.drain() {
                heard = Instant::now();
            }
            if looked.elapsed() >= QUIET_EVERY {
                self.translator().look_for_quiet_streams();
                looked = Instant::now();
            }
        }
    }

    /// Asks CUPTI for what is complete, if it is there.
    fn flush(&self) {
        // Nobody lets go of it meanwhile.
        let _translator = self.translator();
        if !self.rests() {
            library::flush(false);
        }
    }

    /// Records what has been handed over, if anything has; what waits for records of calls stays.
    pub(crate) fn drain(&self) -> bool {
        self.drain_until(now() - CALLS_COME_WITHIN)
    }

    /// Records all that has been handed over.
    pub(crate) fn drain_all(&self) {
        self.drain_until(Nanos(i64::MAX));
    }

    /// Records what has been handed over, if anything has; what waits for records of calls, if it came until then.
    fn drain_until(&self, waited: Nanos) -> bool {
        // Held throughout, so that whoever drains last has drained all.
        let mut translator = self.translator();
        if self.rests() {
            return false;
        }
        if let Some(reading) = ClockReading::take(library::timestamp) {
            translator.clock.add(reading);
        }
        translator.read_notes();
        let mut is_new = false;
        let mut waiting = lock(&self.waiting);
        while let Some(filled) = BUFFERS.take_filled() {
            is_new = true;
            translator.read_notes();
            if self.launches_by == LaunchesBy::Notes {
                read(filled, |record| translator.translate(record));
                continue;
            }
            look(&filled, |record| {
                if let Some(Record::Call(call)) = record
                    && library::is_launch(&call)
                {
                    translator.called(call);
                }
            });
            waiting.push_back((now(), filled));
        }
        translator.called_until(waited);
        while let Some((_, filled)) = waiting.pop_front_if(|(since, _)| *since <= waited) {
            read(filled, |record| translator.translate(record));
        }
        translator.settle_memory();
        translator.record_held_memory();
        translator.lose(library::take_dropped());
        is_new
    }
}

/// Gives `each` the records of a buffer, and the buffer back.
fn read(filled: Filled, each: impl FnMut(Option<Record<'_>>)) {
    look(&filled, each);
    BUFFERS.give_back(filled.buffer);
}

/// Gives `each` the records of a buffer.
#[allow(unsafe_code)]
fn look(filled: &Filled, each: impl FnMut(Option<Record<'_>>)) {
    let bytes = filled.records();
    // SAFETY: CUPTI has written them, and is there until nobody drains any more.
    unsafe { records::read(bytes, &filled.form, library::next_record(bytes, &filled.form), each) };
}
