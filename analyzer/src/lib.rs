//! What a run says: where its time goes, what fills its memory, what hides its communication, in figures that add up.
//!
//! In layers, each of which uses only those before it: `figures`, what is said, as plain structs; `rank`, what one rank
//! says; `job`, what ranks say together; `findings`, what stands out; `analyze`, all of it; and on top, beside each other,
//! `live`, `detail`, `diff` and `incidents`. Inside a layer there is one file a question: every figure is defined where it is computed,
//! by the public contract.

mod analyze;
mod detail;
mod diff;
mod each_rank;
mod error;
mod figures;
mod findings;
mod incidents;
mod job;
mod job_summary;
mod live;
mod rank;
mod selection;
mod stored;
mod summaries;
#[cfg(test)]
mod test_runs;

pub use analyze::{analyze, chosen_ranks, summarize_job};
pub use detail::{
    Column, Frame, LaneColumns, Link, LongSpan, Overlay, RankOverlay, RankSpans, RankView, RankWork, RunStretch,
    SpanFacts, StretchChoice, StretchKind, StretchSpan, StretchStream, TimelineColumns, analyze_with_overlay,
    ideal_work, step_passes,
};
pub use diff::{
    BUS_BANDWIDTH, BytesDiff, CauseKind, DIFF_METRICS, Diff, Interval, KernelDiff, KernelStatus, MemoryCause,
    MemoryDiff, MemoryPart, MetricDiff, MetricRow, Profile, ScalingPoint, Setting, SettingDiff, SettingRow, Several,
    TimeCause, TimeDiff, Unit, compare, profile, several,
};
pub use error::AnalysisError;
pub use figures::{
    AlignedBy, Analysis, AxisShare, Block, Bound, Breakdown, CallName, CallNode, CallSite, CallTree, CallerInTime,
    CallerMemory, CallersOverTime, CategoryCalls, Cause, Class, ClockSummary, CollectiveFigures, CountedSteps,
    CountedTime, CounterFigures, CriticalPath, DataLoss, DeviceFigures, DurationBin, EndedEarly, Evidence,
    ExpertFigures, ExpertLayer, FailedSource, FamilyFigures, FamilyTime, Finding, GemmFigures, Hang, HangCause,
    HostFigures, HostOperator, HostPhase, HostTime, IdleReason, IdleShare, KernelDurations, KernelFigures, KernelMfu,
    KernelRates, LaunchedKernels, LayerMemory, LayerShare, Ledger, LibraryMemory, Limit, MemoryLibrary, MemoryPoint,
    MemoryShortage, MessageSize, Mfu, ModelFrom, ModuleFigures, OperatorFigures, Partition, PathPart, PathRank,
    PathShare, PathStretch, Paused, PendingOperation, PhaseShare, PipelineFigures, PlaceFigures, PlaceKind, PlanScore,
    RankClock, RankElsewhere, RankFigures, RankMemory, RankOperation, Recording, Roofline, RunLayout, RunSummary,
    ScoredFigure, SegmentSummary, ShapeFigures, Share, SourceFigures, SpanPlace, StageFigures, StepBubble,
    StepCollectives, StepFigures, StepRecord, StepSummary, StepTime, Straggler, Wait, WaitingRank, WaitingWork,
    WaterfallLine, WaterfallPart, WaterfallRow, WhatIf, Without,
};
pub use incidents::{
    HangExplanation, JobWatch, KnownIncident, Notice, SlowStepCause, WatchedStep, known_incidents, why_hanging,
    why_slow,
};
pub use job::{
    clock::AlignedClock,
    ideal_schedule::NoIdeal,
    measured_rates::measured_rates,
    outliers::{Spread, outliers},
    paused::paused,
    plan_score::plan_score,
    progress::JobTime,
    recording::recording,
};
pub use live::{LiveRun, LiveSnapshot, RunningStep};
pub use rank::{
    intervals::Intervals,
    step_windows::StepWindow,
    streams::{LabelCounts, StreamUse},
    work::{Pass, WorkItem},
};
pub use selection::{Selection, StepChoice, StepRange};
pub use summaries::{Summarized, summarize};
