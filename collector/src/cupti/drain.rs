//! The thread that reads what CUPTI hands over.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Acquire},
    },
    thread,
    time::{Duration, Instant},
};

use super::{buffers::BUFFERS, clock::ClockReading, library, records, translator::Translator};
use crate::shared::{Shared, lock};

/// How often the clocks and notes of launches are read; a thread leaves far fewer in this time than fit.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long CUPTI may hand nothing over before it is asked for what is complete. Asking makes launches wait, and a busy
/// program fills buffers without it.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// CUPTI, attached to this process.
pub(crate) struct Session {
    translator: Mutex<Translator>,
    pub(crate) ending: AtomicBool,
}

impl Session {
    pub(crate) fn new() -> Session {
        Session { translator: Mutex::new(Translator::new()), ending: AtomicBool::new(false) }
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

    /// Reads what comes until it is told to end.
    pub(crate) fn run(&self) {
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        while !self.ending.load(Acquire) {
            thread::park_timeout(LOOK_EVERY);
            if heard.elapsed() >= FLUSH_EVERY {
                library::flush(false);
                heard = Instant::now();
            }
            if self.drain() {
                heard = Instant::now();
            }
            if looked.elapsed() >= FLUSH_EVERY {
                self.translator().look_for_quiet_streams();
                looked = Instant::now();
            }
        }
    }

    /// Records what has been handed over, if anything has.
    #[allow(unsafe_code)]
    pub(crate) fn drain(&self) -> bool {
        // Held throughout, so that whoever drains last has drained all.
        let mut translator = self.translator();
        if let Some(reading) = ClockReading::take(library::timestamp) {
            translator.clock.add(reading);
        }
        translator.read_notes();
        let mut is_new = false;
        while let Some(filled) = BUFFERS.take_filled() {
            translator.read_notes();
            let bytes = filled.records();
            // SAFETY: CUPTI has written them, and is there until nobody drains any more.
            unsafe { records::read(bytes, library::next_record(bytes), |record| translator.translate(record)) };
            BUFFERS.give_back(filled.buffer);
            is_new = true;
        }
        translator.settle_memory();
        translator.lose(library::take_dropped());
        is_new
    }
}
