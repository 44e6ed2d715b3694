//! What keys do in the timeline.

use ratatui::crossterm::event::KeyCode;

use crate::keys::{Action, Binding};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding {
        keys: &[KeyCode::Char('+'), KeyCode::Char('=')],
        action: Action::ZoomIn,
        short: "zoom",
        long: "nearer, down to the nanosecond",
    },
    Binding {
        keys: &[KeyCode::Char('-')],
        action: Action::ZoomOut,
        short: "zoom",
        long: "farther, up to all of the run",
    },
    Binding { keys: &[KeyCode::Left, KeyCode::Char('h')], action: Action::Earlier, short: "pan", long: "earlier" },
    Binding { keys: &[KeyCode::Right, KeyCode::Char('l')], action: Action::Later, short: "pan", long: "later" },
    Binding {
        keys: &[KeyCode::Char('p')],
        action: Action::Previous,
        short: "kernel",
        long: "select the kernel before",
    },
    Binding { keys: &[KeyCode::Char('n')], action: Action::Next, short: "kernel", long: "select the kernel after" },
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
    Binding { keys: &[KeyCode::Enter], action: Action::Fit, short: "fit", long: "the selected kernel alone" },
    Binding {
        keys: &[KeyCode::Char('f')],
        action: Action::Follow,
        short: "step",
        long: "the whole step again; the newest one is followed",
    },
    Binding {
        keys: &[KeyCode::Char(',')],
        action: Action::PreviousStep,
        short: "step",
        long: "choose the step before",
    },
    Binding { keys: &[KeyCode::Char('.')], action: Action::NextStep, short: "step", long: "choose the step after" },
    Binding { keys: &[KeyCode::PageUp], action: Action::PageUp, short: "", long: "ranks above" },
    Binding { keys: &[KeyCode::PageDown], action: Action::PageDown, short: "", long: "ranks below" },
];
