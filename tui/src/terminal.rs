//! The terminal: taken when the dashboard opens, and given back however it ends.

use std::{
    io::{self, Stdout, stdout},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{DisableMouseCapture, EnableMouseCapture},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

/// Whether the terminal is ours at the moment.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, which is given back when this is dropped.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal: keys come one by one, and what was on it comes back later.
    pub(crate) fn take() -> io::Result<Screen> {
        give_back_on_panic();
        set_up().map(|terminal| Screen { terminal }).inspect_err(|_| give_back())
    }

    /// Gives the terminal back while something else is done, and takes it again: what was drawn is gone.
    pub(crate) fn without(&mut self, other: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        give_back();
        other()?;
        // A new one knows that nothing is drawn, and asks the terminal nothing.
        self.terminal = set_up()?;
        Ok(())
    }
}

fn set_up() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Leaves the terminal as it was found. Once is enough, and a terminal that is gone needs nothing.
pub(crate) fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// A panic is to be read, on a terminal that is the user's again.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
