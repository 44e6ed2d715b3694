//! What of a run is looked at.

use std::collections::BTreeMap;

use stepscope_plan::{Convention, ModelShape};
use stepscope_traces::{Rank, Step, Window};

/// What of a run is looked at, and what is known besides.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The steps that figures are of.
    pub steps: StepChoice,
    /// Only these ranks; all, if there are none.
    pub ranks: Vec<Rank>,
    /// Only what lies in this window of each rank's clock is read: a live view need not read all of a long run.
    pub window: Option<Window>,
    /// Of these ranks only what lies in a window of their own is read instead.
    pub windows: BTreeMap<Rank, Window>,
    /// What a device computes at most, in FLOP/s, instead of what the run says.
    pub peak_flops: Option<f64>,
    /// Which FLOPs count for MFU.
    pub convention: Convention,
    /// What is trained, instead of what the run says.
    pub model: Option<ModelShape>,
    /// How many tokens a sequence has, instead of what the run says.
    pub sequence_length: Option<u64>,
    /// How many tokens the whole job trains on in a step, instead of what the run says.
    pub tokens_per_step: Option<f64>,
    /// Whether only what is said in words is wanted, and neither each rank's steps nor its memory over time: what a large job
    /// comes to is read faster then.
    pub words_only: bool,
}

/// The steps that figures are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepChoice {
    /// Those that count: recorded to their end, and not of the warm-up.
    #[default]
    Counted,
    /// All of them, and what is in none: the whole recording.
    All,
    /// These.
    Range(StepRange),
}

impl StepChoice {
    /// Whether a step may be meant. What belongs to no step is, unless steps are chosen.
    pub fn may_have(self, step: Option<Step>) -> bool {
        match self {
            StepChoice::Counted | StepChoice::All => true,
            StepChoice::Range(range) => range.has(step),
        }
    }
}

impl From<StepRange> for StepChoice {
    fn from(range: StepRange) -> StepChoice {
        if range == StepRange::ALL { StepChoice::All } else { StepChoice::Range(range) }
    }
}

impl Selection {
    /// Whether it is what a run comes to for everybody who asks for nothing else: of all ranks, in the steps that count.
    pub(crate) fn is_usual(&self) -> bool {
        let Selection { steps, ranks, window: _, windows: _, peak_flops, convention, model, .. } = self;
        let is_told = model.is_some() || self.sequence_length.is_some() || self.tokens_per_step.is_some();
        let is_whole = *steps == StepChoice::Counted && ranks.is_empty() && self.reads_all();
        is_whole && peak_flops.is_none() && *convention == Convention::default() && !is_told
    }

    /// Whether all of the recording is read.
    pub(crate) fn reads_all(&self) -> bool {
        self.window.is_none() && self.windows.is_empty()
    }

    /// What of a rank is read.
    pub(crate) fn window_of(&self, rank: Rank) -> Window {
        self.windows.get(&rank).copied().or(self.window).unwrap_or(Window::ALL)
    }
}

/// Steps from one to before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRange {
    /// The first one, if it is not the first there is.
    pub from: Option<Step>,
    /// The one after the last, if it is not the last there is.
    pub to: Option<Step>,
}

impl StepRange {
    /// Every step, and what is in none.
    pub const ALL: StepRange = StepRange { from: None, to: None };

    /// Whether a step is meant. What belongs to no step is meant where all is.
    pub fn has(self, step: Option<Step>) -> bool {
        match step {
            None => self == StepRange::ALL,
            Some(step) => self.from.is_none_or(|from| from <= step) && self.to.is_none_or(|to| step < to),
        }
    }
}
