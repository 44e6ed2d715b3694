//! Everything that happens to the dashboard, as one type.

use std::{path::PathBuf, sync::Arc};

use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use stepscope_analyzer::Analysis;
use stepscope_traces::{State, Step};

use crate::data::{Detail, RunChoice, Snapshot};

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
    /// The figures of a step that was asked for; with why, if they cannot be read.
    Step(Step, Result<Arc<Analysis>, String>),
    /// What was seen is written, in words; with why, if it cannot be.
    Exported(Result<String, String>),
    /// The runs that may be looked at instead, the newest first.
    Runs(Vec<RunChoice>),
    /// What became of one of them.
    RunState(PathBuf, State),
    /// A run has begun after the one that is shown ended.
    NewerRun,
    /// What a view asked for is read.
    Detail(Detail),
    /// The job that the dashboard belongs to has ended; with why, if it failed.
    JobEnded(Option<String>),
}
