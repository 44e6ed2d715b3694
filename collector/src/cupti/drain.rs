//! The thread that reads what CUPTI hands over.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Acquire},
    },
    thread,
    time::{Duration, Instant},
};

use super::{buffers::BUFFERS, clock::Reading, library, records, translator::Translator};
use crate::shared::lock;

/// How often the clocks and notes of launches are read; a thread leaves far fewer in this time than fit.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often CUPTI is asked for what is complete.
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

    /// Reads what comes until it is told to end.
    pub(crate) fn run(&self) {
        let mut flushed = Instant::now();
        while !self.ending.load(Acquire) {
            thread::park_timeout(LOOK_EVERY);
            let is_due = flushed.elapsed() >= FLUSH_EVERY;
            if is_due {
                library::flush(false);
                flushed = Instant::now();
            }
            self.drain();
            if is_due {
                self.translator().look_for_quiet_streams();
            }
        }
    }

    /// Records what has been handed over.
    #[allow(unsafe_code)]
    pub(crate) fn drain(&self) {
        // Held throughout, so that whoever drains last has drained all.
        let mut translator = self.translator();
        if let Some(reading) = Reading::take(library::timestamp) {
            translator.clock.add(reading);
        }
        translator.read_notes();
        while let Some(filled) = BUFFERS.take_filled() {
            translator.read_notes();
            let bytes = filled.records();
            // SAFETY: CUPTI has written them, and is there until nobody drains any more.
            unsafe { records::read(bytes, library::next_record(bytes), |record| translator.translate(record)) };
            BUFFERS.give_back(filled.buffer);
        }
        translator.lose(library::take_dropped());
    }
}
