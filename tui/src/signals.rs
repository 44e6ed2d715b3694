//! Signals that end a program, and a terminal that is gone: the dashboard ends as it should, and not in the middle of
//! something.

use std::{
    io::{self, IsTerminal, stdin},
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP},
    flag,
    low_level::emulate_default_handler,
};

use crate::terminal::give_back;

/// How often the terminal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the dashboard may take to leave. Who waits for keys of a terminal that is gone waits for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of signals.
pub(crate) struct Signals {
    came: Arc<AtomicBool>,
    asks_to_stop: Arc<AtomicBool>,
    may_end_us: Arc<AtomicBool>,
}

impl Signals {
    /// Waits for signals from now on.
    pub(crate) fn register() -> io::Result<Signals> {
        let signals = Signals { came: Arc::default(), asks_to_stop: Arc::default(), may_end_us: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // A program that a signal ends has this status in a shell.
            flag::register_conditional_shutdown(signal, 128 + signal, signals.may_end_us.clone())?;
            flag::register(signal, signals.came.clone())?;
        }
        flag::register(SIGTSTP, signals.asks_to_stop.clone())?;
        let (came, has_left) = (signals.came.clone(), signals.may_end_us.clone());
        let is_terminal = stdin().is_terminal();
        thread::Builder::new().name("signals".into()).spawn(move || watch(&came, &has_left, is_terminal))?;
        Ok(signals)
    }

    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Whether somebody asked to stop for a while, since this was called last.
    pub(crate) fn takes_stop(&self) -> bool {
        self.asks_to_stop.swap(false, Ordering::Relaxed)
    }

    /// The terminal is the user's again: the next one ends the program at once.
    pub(crate) fn may_end_us(&self) {
        self.may_end_us.store(true, Ordering::Relaxed);
    }
}

/// Stops this process, until somebody has it go on.
pub(crate) fn stop_for_a_while() -> io::Result<()> {
    emulate_default_handler(SIGTSTP)
}

/// Ends the program where the dashboard does not leave, though it should.
fn watch(came: &AtomicBool, has_left: &AtomicBool, is_terminal: bool) {
    let mut since: Option<Instant> = None;
    while !has_left.load(Ordering::Relaxed) {
        if is_terminal && is_gone() {
            came.store(true, Ordering::Relaxed);
        }
        if came.load(Ordering::Relaxed) && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            give_back();
            exit(128 + SIGHUP);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Whether nobody is at the other end of the terminal any more.
fn is_gone() -> bool {
    let input = stdin();
    let mut asked = [PollFd::new(std::os::fd::AsFd::as_fd(&input), PollFlags::empty())];
    let answer = poll(&mut asked, PollTimeout::ZERO);
    answer.is_ok()
        && asked[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}
