//! Everything that happens to the dashboard, as one type.

use std::sync::Arc;

use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use crate::data::{Detail, Snapshot};

/// Something that happens.
#[derive(Clone)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// The terminal has another size.
    Resized,
    /// There is something new of the run.
    Data(Arc<Snapshot>),
    /// What a view asked for is read.
    Detail(Detail),
    /// The job that the dashboard belongs to has ended; with why, if it failed.
    JobEnded(Option<String>),
}
