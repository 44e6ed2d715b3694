//! What of a run is exported, as people type it.

use std::path::PathBuf;

use stepscope_analyzer::{Selection, StepChoice};
use stepscope_traces::{
    Run,
    export::perfetto::{Detail, Level},
};

use super::amount_of_bytes;
use crate::analyze::ranges::{self, RankList};

/// What of a run is exported.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// A run directory, PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), or a directory of these;
    /// the newest run under runs/ if nothing is named.
    #[arg(value_name = "SOURCE")]
    pub(crate) sources: Vec<PathBuf>,
    /// Export these steps: A..B is from A to before B, A.. from A on, ..B before B, N only N. Default: everything, with figures
    /// of complete steps without warm-up; `all` has figures of the whole recording.
    #[arg(long, value_name = "A..B|all", value_parser = ranges::choice, allow_hyphen_values = true)]
    steps: Option<StepChoice>,
    /// Only these ranks: 0,2-5.
    #[arg(long, value_name = "LIST", value_parser = ranges::ranks)]
    ranks: Option<RankList>,
    /// The largest trace to write, before it is packed: what does not fit is left out level by level, and said [default:
    /// 256M, which a browser opens, and 64M with the arguments of every kernel].
    #[arg(long, value_name = "SIZE", value_parser = amount_of_bytes::parse)]
    max_size: Option<u64>,
}

/// What is exported, and how.
pub(crate) struct Wanted {
    /// What of a run is analyzed.
    pub(super) selection: Selection,
    /// How large a trace may be, if that is said.
    max_size: Option<u64>,
    /// Whether a terminal is told how far it is.
    pub(super) shows_progress: bool,
}

/// A browser opens so much.
const LARGEST: u64 = 256_000_000;
/// Arguments take more than all else that is said of a kernel. Nobody clicks on so many of them.
const LARGEST_WITH_ARGUMENTS: u64 = 64_000_000;

impl Wanted {
    /// Some of a run, as large as a browser opens it.
    pub(crate) fn of(selection: Selection) -> Wanted {
        Wanted { selection, max_size: None, shows_progress: true }
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

impl Chosen {
    /// What that is, of a run.
    pub(crate) fn of(&self, run: &Run) -> Wanted {
        let selection = Selection {
            steps: self.steps.unwrap_or_default(),
            ranks: self.ranks.as_ref().map_or_else(Vec::new, |list| list.among(run)),
            ..Selection::default()
        };
        Wanted { max_size: self.max_size, ..Wanted::of(selection) }
    }
}
