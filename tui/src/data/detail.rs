//! What views ask for beside the snapshot: a stretch of time of some ranks, or the passes of one step. It is read when it is
//! asked for, and reduced to what fits on a screen.

use std::sync::Arc;

use stepscope_analyzer::{Analysis, RankSpans, RankWork, StepFigures, TimelineColumns};
use stepscope_plan::Schedule;
use stepscope_traces::{Nanos, Rank, Step, Window};

/// What a view would like to see.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DetailRequest {
    /// What ranks did in a stretch of time.
    Timeline(TimelineRequest),
    /// The passes of a step.
    Passes(PassesRequest),
}

/// A stretch of time of some ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimelineRequest {
    pub(crate) ranks: Vec<RankTime>,
    /// In the clock all ranks are aligned to; all that there is, if there is none.
    pub(crate) window: Option<Window>,
    /// How many columns it is drawn in.
    pub(crate) columns: usize,
    /// The newest there was when it was asked, where there may be more in the window than was read before.
    pub(crate) newest: Option<Nanos>,
}

/// A rank, and how its clock differs from the one all ranks are aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankTime {
    pub(crate) rank: Rank,
    /// What to add to its times.
    pub(crate) shift: i64,
}

/// The passes of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PassesRequest {
    pub(crate) step: Step,
    /// Where the step lies on each rank that is asked for.
    pub(crate) figures: Vec<StepFigures>,
    /// Which says what a stage comes back for.
    pub(crate) schedule: Schedule,
}

/// What was read last, of each kind.
#[derive(Clone, Default)]
pub(crate) struct Details {
    pub(crate) timeline: Option<Arc<TimelineDetail>>,
    pub(crate) passes: Option<Arc<Passes>>,
    /// Why the last thing could not be read.
    pub(crate) failure: Option<String>,
}

/// What came of a request.
#[derive(Clone)]
pub(crate) enum Detail {
    Timeline(Arc<TimelineDetail>),
    Passes(Arc<Passes>),
    Failed(String),
}

/// What ranks did in a stretch of time.
pub(crate) struct TimelineDetail {
    /// In the clock all ranks are aligned to.
    pub(crate) window: Window,
    /// From the first to the last that these ranks recorded, when they were first looked at.
    pub(crate) extent: Option<(i64, i64)>,
    pub(crate) ranks: Vec<RankDetail>,
}

/// What a rank did in it.
pub(crate) struct RankDetail {
    pub(crate) time: RankTime,
    pub(crate) columns: TimelineColumns,
    /// Span by span; none where there are too many.
    pub(crate) spans: Option<Arc<RankSpans>>,
}

/// The passes of a step, in nanoseconds since it began on the first of the ranks.
pub(crate) struct Passes {
    pub(crate) step: Step,
    pub(crate) ranks: Vec<RankWork>,
}

impl Details {
    /// Takes in what was read.
    pub(crate) fn take(&mut self, detail: Detail) {
        self.failure = None;
        match detail {
            Detail::Timeline(timeline) => self.timeline = Some(timeline),
            Detail::Passes(passes) => self.passes = Some(passes),
            Detail::Failed(why) => self.failure = Some(why),
        }
    }
}

impl RankTime {
    /// A rank's time about a moment of the clock all ranks are aligned to: as in a step near to it; where there are no steps,
    /// as at the beginning.
    pub(crate) fn of(analysis: &Analysis, rank: Rank, moment: Option<i64>) -> RankTime {
        let steps = &analysis.steps;
        let after = moment.map_or(0, |moment| steps.partition_point(|step| step.aligned_start_ns <= moment));
        let is_its = |step: &&StepFigures| step.rank == rank;
        let near = steps[..after].iter().rfind(is_its).or_else(|| steps[after..].iter().find(is_its));
        let clock = || analysis.clock.ranks.iter().find(|clock| clock.rank == rank).map_or(0, |clock| clock.offset_ns);
        let shift = near.map_or_else(clock, |step| step.aligned_start_ns.saturating_sub(step.start_ns));
        RankTime { rank, shift }
    }

    /// A stretch of the clock all ranks are aligned to, in the rank's own.
    pub(crate) fn own(self, window: Window) -> Window {
        let own = |time: Nanos| Nanos(time.0.saturating_sub(self.shift));
        Window { from: own(window.from), to: own(window.to) }
    }

    /// A time of the rank, in the clock all ranks are aligned to.
    pub(crate) fn aligned(self, time: i64) -> i64 {
        time.saturating_add(self.shift)
    }
}
