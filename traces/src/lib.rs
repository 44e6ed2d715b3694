//! The run directory: what is recorded of a training run, written by its ranks and read by everything else.
//!
//! ```
//! use stepscope_traces::{
//!     MemoryEvent, NameId, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Step, Window, FIRST_NAME,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("run");
//! RunInfo::of_this_process("example").create(&path)?;
//! let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0)))?;
//! writer.push_name(FIRST_NAME, "matmul")?;
//! writer.push_span(&Span {
//!     step: Some(Step(1)),
//!     ..Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(1_000), Nanos(250))
//! })?;
//! writer.finish()?;
//!
//! let run = Run::open(&path)?;
//! let (data, loss) = run.ranks[0].read(Window::ALL)?;
//! assert_eq!(data.names.get(data.spans.name.get(0)), Some("matmul"));
//! assert!(loss.is_none());
//! # Ok(())
//! # }
//! ```

mod beside;
mod call_text;
mod clock;
mod columns;
mod driver_call;
mod error;
#[cfg(feature = "perfetto")]
pub mod export;
mod follower;
mod format;
#[cfg(test)]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;
mod growing_file;
mod ids;
mod import;
mod incident;
mod inferred_steps;
mod job_summary_file;
mod json_file;
mod kernels;
mod loss;
mod membership;
mod names;
mod notes;
mod operators;
mod origin;
mod rank_data;
mod rank_info;
mod reader;
mod regular_file;
mod ring;
mod run_info;
mod sections_file;
mod segments;
#[cfg(test)]
#[path = "../../tests/support/skipped.rs"]
mod skipped;
mod standing_memory;
mod summary_file;
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod table_file;
mod tables;
mod timed_tables;
mod topology;
mod vocabulary;
mod whole_file;
mod window;
mod writer;

pub use beside::beside;
pub use clock::{ClockMap, ClockRecord, ClockSnapshot, now};
pub use columns::{Cell, Column, OptionalColumn};
pub use driver_call::DriverCall;
pub use error::{ImportError, JoinError, PickleError, SnapshotError, SummaryError, TraceError};
pub use follower::{Follower, More};
pub use format::SCHEMA_VERSION;
pub use ids::{
    Correlation, CounterId, Group, Layer, MessageNumber, MicroBatch, NameId, Nanos, Pool, Rank, Sequence, Stage, Step,
    Stream,
};
pub use import::{FollowError, FollowedMemory, Mark, Observation, Taken, TrainingEvent, in_flight};
pub use incident::{Incident, IncidentKind, KeptIncident, RankStacks};
pub use job_summary_file::JobSummary;
pub use kernels::{AskedCommunication, Carrier, Family, GemmFeatures, KernelKind, Transposes};
pub use loss::Loss;
pub use membership::Membership;
pub use names::{FIRST_NAME, Names, without_signature};
pub use notes::{
    AskedOperation, AttentionNote, CollectorNote, CollectorNotes, CollectorSource, CuptiNote, FailedSources,
    GroupProgress, HeldMemory, InFlight, LostOfTrace, MeasuredCost, MemoryAtStart, MemoryCategories, MemoryTimes,
    NamedGroup, NamedGroups, NativeThread, NcclNote, NvmlNote, OperationState, OperatorsFrom, OutOfMemory, Pauses,
    PeakFlopsFrom, PeakFrom, PhasesFrom, ProgramModel, PythonThread, RankFrom, RecorderSettings, RecordingCost,
    SequencesFrom, StackDump, StreamsNote, TorchMemory, TorchNotes,
};
pub use operators::{ElementType, Gemm, OperatorArgument, OperatorWork, Shapes, Tensor};
pub use origin::Origin;
pub use rank_data::{RankData, Survey, TableSurvey};
pub use rank_info::{
    Device, EVALUATION_LOSS, NOISE_SCALE, RECORDED_WINDOW, REPLICA_TOKENS, RankInfo, STOOD_STILL, State, Written,
    expert_tokens, groups_told, layer_and_expert,
};
pub use reader::{RankDirectory, RankReport, Run};
pub use regular_file::{open_lock_file, open_regular};
pub use run_info::{GitRevision, GroupInfo, RingBounds, RunInfo, RunSource};
pub use segments::Segment;
pub use summary_file::{Summary, SummaryUse};
pub use tables::{CounterSample, CounterSamples, MemoryEvent, MemoryEvents, Span, Spans};
pub use topology::{GpuSlot, Topology};
pub use vocabulary::{Counter, MemoryCategory, MemoryHolder, MemoryOperation, Phase, SpanKind};
pub use window::Window;
pub use writer::RankWriter;

#[cfg(not(target_endian = "little"))]
compile_error!("run directories are little-endian, and so must be the machine");
