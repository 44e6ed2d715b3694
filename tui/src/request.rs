//! What the dashboard asks of others, who answer with events.

use std::{collections::BTreeMap, path::PathBuf};

use stepscope_analyzer::StepRange;
use stepscope_traces::{Rank, Step, Window};

/// What the dashboard asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The figures of one step.
    Step(StepRequest),
    /// What is seen, as a trace for ui.perfetto.dev.
    Export(ExportScope),
    /// The runs that may be looked at instead.
    Runs,
    /// Another run.
    Open(PathBuf),
}

/// A step whose figures are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepRequest {
    /// Which step.
    pub(crate) step: Step,
    /// What to read of each rank for it; all of those that are not named.
    pub(crate) windows: BTreeMap<Rank, Window>,
}

/// What is seen of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportScope {
    /// The steps.
    pub steps: StepRange,
    /// The ranks; all, if there are none.
    pub ranks: Vec<Rank>,
}
