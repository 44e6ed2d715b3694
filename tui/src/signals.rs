//! Signals that end a program: the dashboard ends as it should, and not in the middle of something.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// What came of signals.
pub(crate) struct Signals {
    came: Arc<AtomicBool>,
    may_end_us: Arc<AtomicBool>,
}

impl Signals {
    /// Waits for signals from now on.
    pub(crate) fn register() -> io::Result<Signals> {
        let signals = Signals { came: Arc::default(), may_end_us: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // A program that a signal ends has this status in a shell.
            flag::register_conditional_shutdown(signal, 128 + signal, signals.may_end_us.clone())?;
            flag::register(signal, signals.came.clone())?;
        }
        Ok(signals)
    }

    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// The terminal is the user's again: the next one ends the program at once.
    pub(crate) fn may_end_us(&self) {
        self.may_end_us.store(true, Ordering::Relaxed);
    }
}
