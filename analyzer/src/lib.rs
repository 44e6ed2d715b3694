//! What a run says: where its time goes, what fills its memory, what hides its communication, in figures that add up.
//!
//! One file a question. Every figure is defined where it is computed, by the public contract.

mod activity;
mod analysis;
mod breakdown;
mod bubbles;
mod clock;
mod close_up;
mod collectives;
mod communication;
mod devices;
mod diff;
mod error;
mod family;
mod findings;
mod growing;
#[cfg(test)]
mod hand_made;
mod ideal;
mod intervals;
mod kernels;
mod line;
mod links;
mod memory;
mod messages;
mod mfu;
mod overlay;
mod partition;
mod rank;
mod rank_spans;
mod roofline;
mod selection;
mod stages;
mod step_summary;
mod step_time;
mod steps;
mod stragglers;
mod streams;
mod sweep;
mod timeline;
mod work;

pub use activity::Class;
pub use analysis::{Analysis, DataLoss, RankTime, RunSummary, analyze, analyze_with_overlay};
pub use breakdown::{AxisShare, Breakdown, LayerShare, PhaseShare, Share};
pub use bubbles::{PipelineFigures, StageFigures, StepBubble};
pub use clock::{AlignedBy, AlignedClock, ClockSummary, RankClock};
pub use close_up::{Column, Frame, LaneColumns, LongSpan, RankCloseUp};
pub use collectives::CollectiveFigures;
pub use devices::{CounterFigures, DeviceFigures};
pub use diff::{
    BUS_BANDWIDTH, BytesDiff, CauseKind, DIFF_METRICS, Diff, Interval, KernelDiff, KernelStatus, MemoryCause,
    MemoryDiff, MemoryPart, MetricDiff, MetricRow, Profile, ScalingPoint, Setting, SettingDiff, SettingRow, Several,
    TimeCause, TimeDiff, Unit, compare, profile, several,
};
pub use error::AnalysisError;
pub use family::Family;
pub use findings::Finding;
pub use growing::{GrowingRun, Picture, RunningStep};
pub use ideal::{NoIdeal, ideal_work};
pub use intervals::Intervals;
pub use kernels::{FamilyFigures, KernelFigures};
pub use links::Link;
pub use memory::{Block, LayerMemory, Ledger, MemoryPoint, RankMemory};
pub use mfu::Mfu;
pub use overlay::{Overlay, RankOverlay};
pub use partition::Partition;
pub use rank::RankFigures;
pub use rank_spans::{RankSpans, RankView, SpanFacts};
pub use roofline::{Bound, Roofline};
pub use selection::{Selection, StepRange};
pub use step_summary::StepSummary;
pub use step_time::StepTime;
pub use steps::{StepFigures, StepWindow};
pub use stragglers::{Straggler, Wait};
pub use streams::{Said, StreamUse};
pub use timeline::{Lane, LaneSpan, RankWork, StepTimeline, step_timeline};
pub use work::{Pass, WorkItem};
