//! Looks what became of other runs, on a thread of its own: a run may have thousands of ranks.

use std::{io, path::PathBuf, sync::mpsc::Sender, thread};

use stepscope_traces::Run;

use crate::event::Event;

/// Begins to look at runs, one after another, and says what became of each. One that cannot be opened is passed over.
pub(crate) fn look_at_runs(runs: Vec<PathBuf>, events: Sender<Event>) -> io::Result<()> {
    let look = move || {
        let states = runs.into_iter().filter_map(|path| Some((Run::open(&path).ok()?.state(), path)));
        for (state, path) in states {
            // Whoever has left does not ask any more.
            if events.send(Event::RunState(path, state)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("run states".into()).spawn(look).map(drop)
}
