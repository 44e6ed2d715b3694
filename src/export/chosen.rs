//! Which part of a run is exported.

use std::path::PathBuf;

use stepscope_analyzer::{RankOverlay, Selection, StepChoice};
use stepscope_traces::{
    Nanos, Rank, Run, Window,
    export::perfetto::{Detail, Level},
};

use crate::amount_of_bytes;
use crate::analyze::ranges::{self, RankList};

/// What of a run is exported.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// A run directory, PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), Nsight Systems exports
    /// (*.sqlite), JAX profiles (*.xplane.pb), rocprofv3 JSON or databases, Flight Recorder dumps, or a
    /// directory of these
    /// [default: the newest run under runs/]
    #[arg(value_name = "SOURCE")]
    pub(crate) sources: Vec<PathBuf>,
    /// Steps to export [default: everything]
    ///
    /// A..B exports from A to before B, A.. from A on, ..B before B, and N only step N. By default everything is exported,
    /// and figures cover complete steps without warm-up; with `all` they cover the whole recording.
    #[arg(long, value_name = "A..B|all", value_parser = ranges::choice, allow_hyphen_values = true, help_heading = "Selection")]
    steps: Option<StepChoice>,
    /// Ranks to export, such as 0,2-5; figures and findings stay those of the whole run [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranges::ranks, help_heading = "Selection")]
    ranks: Option<RankList>,
    /// Largest trace to write, before compression [default: 256M]
    ///
    /// Detail that does not fit is omitted level by level, and reported. A browser opens 256M; by default, arguments of
    /// kernels are omitted beyond 64M.
    #[arg(long, value_name = "SIZE", value_parser = amount_of_bytes::parse, help_heading = "Selection")]
    max_size: Option<u64>,
}

/// What is exported, and how.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// What of a run is analyzed: all of its ranks.
    pub(super) selection: Selection,
    /// The ranks that are drawn; all of them, if there are none.
    pub(super) ranks: Vec<Rank>,
    /// The largest trace to write, if one is chosen.
    max_size: Option<u64>,
    /// Whether a terminal is told how far it is.
    pub(super) shows_progress: bool,
}

/// A browser opens so much.
const LARGEST: u64 = 256_000_000;
/// Arguments take more than all else that is said of a kernel. Nobody clicks on so many of them.
const LARGEST_WITH_ARGUMENTS: u64 = 64_000_000;

impl Wanted {
    /// Some steps of some ranks, or of all of them, as large as a browser opens it.
    pub(crate) fn of(steps: StepChoice, ranks: Vec<Rank>) -> Wanted {
        let selection = Selection { steps, ..Selection::default() };
        Wanted { selection, ranks, max_size: None, shows_progress: true }
    }

    /// The same in at most so many bytes.
    pub(super) fn up_to(&self, bytes: u64) -> Wanted {
        Wanted { max_size: Some(bytes), ..self.clone() }
    }

    /// Whether a rank is drawn.
    pub(super) fn draws(&self, rank: Rank) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    /// Without a word to the terminal.
    pub(crate) fn quietly(self) -> Wanted {
        Wanted { shows_progress: false, ..self }
    }

    /// How large a trace may be that has this much detail.
    pub(super) fn limit(&self, detail: Detail) -> u64 {
        let default = if detail.has(Level::Arguments) { LARGEST_WITH_ARGUMENTS } else { LARGEST };
        self.max_size.unwrap_or(default)
    }
}

/// From the first to the last step of a rank that is chosen; all of time, where all are.
pub(super) fn chosen_window(steps: StepChoice, overlay: &RankOverlay) -> Window {
    match (steps, overlay.steps.first(), overlay.steps.last()) {
        (StepChoice::Counted | StepChoice::All, ..) => Window::ALL,
        (StepChoice::Range(_), Some(first), Some(last)) => Window { from: Nanos(first.start), to: Nanos(last.end) },
        _ => Window::NONE,
    }
}

impl Chosen {
    /// Whether a size was chosen.
    pub(super) fn has_max_size(&self) -> bool {
        self.max_size.is_some()
    }

    /// What that is, of a run.
    pub(crate) fn of(&self, run: &Run) -> Wanted {
        let ranks = self.ranks.as_ref().map_or_else(Vec::new, |list| list.among(run));
        Wanted { max_size: self.max_size, ..Wanted::of(self.steps.unwrap_or_default(), ranks) }
    }
}
