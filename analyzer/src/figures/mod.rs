//! What a run says, as plain structs, and the vocabulary they need. Only sums and shares of figures are computed here: what
//! each figure means in full stands beside its computation, in `rank/` or `job/`.

mod analysis;
mod breakdown;
mod call_sites;
mod call_tree;
mod class;
mod clock;
mod collectives;
mod critical_path;
mod devices;
mod experts;
mod finding;
mod hang;
mod host;
mod idle;
mod kernels;
mod launchers;
mod layout;
mod memory;
mod memory_point;
mod mfu;
mod partition;
mod pipeline;
mod places;
mod plan_score;
mod rank;
mod rates;
mod roofline;
mod rounding;
mod segments;
mod step_record;
mod step_summary;
mod steps;
mod waterfall;
mod what_if;
mod window;

pub use analysis::{Analysis, DataLoss, EndedEarly, FailedSource, Paused, Recording, RunSummary};
pub use breakdown::{AxisShare, Breakdown, LayerShare, PhaseShare, Share};
pub(crate) use call_sites::caller;
pub use call_sites::{CallSite, CallerInTime, CallerMemory, CallersOverTime};
pub use call_tree::{CallName, CallNode, CallTree, CategoryCalls};
pub use class::Class;
pub use clock::{AlignedBy, ClockSummary, RankClock};
pub use collectives::{CollectiveFigures, MessageSize, Straggler, Wait};
pub use critical_path::{CriticalPath, PathPart, PathRank, PathShare, PathStretch};
pub use devices::{CounterFigures, DeviceFigures, Limit};
pub(crate) use devices::{HighestClocks, MEMORY_USED, SM_CLOCK, Throttling};
pub use experts::{ExpertFigures, ExpertLayer};
pub use finding::{Evidence, Finding};
pub use hang::{Hang, HangCause, PendingOperation, RankElsewhere, RankOperation, WaitingRank};
pub use host::{HostFigures, HostOperator, HostPhase, HostTime};
pub use idle::{IdleReason, IdleShare};
pub use kernels::{FamilyFigures, KernelFigures};
pub use launchers::{
    DurationBin, GemmFigures, KernelDurations, LaunchedKernels, ModuleFigures, OperatorFigures, ShapeFigures,
    SourceFigures,
};
pub use layout::RunLayout;
pub use memory::{Block, LayerMemory, Ledger, LibraryMemory, MemoryLibrary, MemoryShortage, RankMemory};
pub use memory_point::MemoryPoint;
pub use mfu::{KernelMfu, Mfu, ModelFrom};
pub use partition::Partition;
pub use pipeline::{PipelineFigures, StageFigures, StepBubble};
pub use places::{PlaceFigures, PlaceKind};
pub use plan_score::{PlanScore, ScoredFigure};
pub use rank::RankFigures;
pub use rates::KernelRates;
pub use roofline::{Bound, Roofline};
pub(crate) use rounding::divided;
pub use segments::SegmentSummary;
pub use step_record::{StepCollectives, StepRecord};
pub use step_summary::StepSummary;
pub use steps::{StepFigures, StepTime};
pub use waterfall::{FamilyTime, WaterfallLine, WaterfallPart, WaterfallRow};
pub use what_if::{Cause, SpanPlace, WaitingWork, WhatIf, Without};
pub use window::{CountedSteps, CountedTime};
