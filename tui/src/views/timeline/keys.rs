//! What keys do in the timeline.

use ratatui::crossterm::event::KeyCode;

use crate::keys::{Action, Binding, EARLIER, LATER, STEP_AFTER, STEP_BEFORE, zoom_in, zoom_out};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    zoom_in("zoom in, down to a nanosecond"),
    zoom_out("zoom out, up to the whole run"),
    EARLIER,
    LATER,
    Binding {
        keys: &[KeyCode::Char('/')],
        action: Action::Filter,
        short: "find",
        long: "find kernels by name: n and p select the next and the previous that match",
    },
    Binding {
        keys: &[KeyCode::Char('p')],
        action: Action::Previous,
        short: "kernel",
        long: "select the previous kernel",
    },
    Binding { keys: &[KeyCode::Char('n')], action: Action::Next, short: "kernel", long: "select the next kernel" },
    Binding {
        keys: &[KeyCode::Up, KeyCode::Char('k')],
        action: Action::Up,
        short: "stream",
        long: "select on the stream above",
    },
    Binding {
        keys: &[KeyCode::Down, KeyCode::Char('j')],
        action: Action::Down,
        short: "stream",
        long: "select on the stream below",
    },
    Binding { keys: &[KeyCode::Enter], action: Action::Fit, short: "fit", long: "zoom to the selected kernel" },
    Binding {
        keys: &[KeyCode::Char('f')],
        action: Action::Follow,
        short: "step",
        long: "show the whole step, and follow the newest one",
    },
    STEP_BEFORE,
    STEP_AFTER,
    Binding { keys: &[KeyCode::PageUp], action: Action::PageUp, short: "", long: "ranks above" },
    Binding { keys: &[KeyCode::PageDown], action: Action::PageDown, short: "", long: "ranks below" },
];
