//! What a run says: where its time goes, what fills its memory, what hides its communication, in figures that add up.
//!
//! One file a question. Every figure is defined where it is computed, by the public contract.

mod analysis;
mod bubbles;
mod clock;
mod clock_fit;
mod collectives;
mod devices;
mod diff;
mod error;
mod figures;
mod findings;
mod ideal;
mod kernels;
mod links;
mod live;
mod messages;
mod mfu;
mod overlay;
mod rank;
mod rank_spans;
mod roofline;
mod selection;
mod stages;
mod step_figures;
mod step_summary;
mod step_time;
mod stragglers;
#[cfg(test)]
mod test_runs;
mod timeline;
mod timeline_columns;

pub use analysis::{analyze, analyze_with_overlay};
pub use clock::AlignedClock;
pub use diff::{
    BUS_BANDWIDTH, BytesDiff, CauseKind, DIFF_METRICS, Diff, Interval, KernelDiff, KernelStatus, MemoryCause,
    MemoryDiff, MemoryPart, MetricDiff, MetricRow, Profile, ScalingPoint, Setting, SettingDiff, SettingRow, Several,
    TimeCause, TimeDiff, Unit, compare, profile, several,
};
pub use error::AnalysisError;
pub use figures::{
    AlignedBy, Analysis, AxisShare, Block, Bound, Breakdown, Class, ClockSummary, CollectiveFigures, CounterFigures,
    DataLoss, DeviceFigures, Family, FamilyFigures, Finding, KernelFigures, LayerMemory, LayerShare, Ledger,
    MemoryPoint, Mfu, Partition, PhaseShare, PipelineFigures, RankClock, RankFigures, RankMemory, RankTime, Roofline,
    RunSummary, Share, StageFigures, StepBubble, StepFigures, StepTime, Straggler, Wait,
};
pub use ideal::ideal_work;
pub use links::Link;
pub use live::{LiveRun, LiveSnapshot, RunningStep};
pub use overlay::{Overlay, RankOverlay};
pub use rank::{
    intervals::Intervals,
    step_windows::StepWindow,
    streams::{LabelCounts, StreamUse},
    work::{Pass, WorkItem},
};
pub use rank_spans::{RankSpans, RankView, SpanFacts};
pub use selection::{Selection, StepRange};
pub use step_summary::StepSummary;
pub use timeline::{LaneSpan, RankWork, StepTimeline, StreamSpans, step_timeline};
pub use timeline_columns::{Column, Frame, LaneColumns, LongSpan, TimelineColumns};
