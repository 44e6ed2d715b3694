//! What records a training job.
//!
//! [`Recorder`] is what an instrumented program calls:
//!
//! ```
//! use stepscope_collector::Recorder;
//! use stepscope_traces::{Counter, MemoryCategory, Phase, Rank, RankInfo, RunInfo, SpanKind, Step, Stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("run");
//! RunInfo::of_this_process("example").create(&path)?;
//! let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0)))?;
//! let matmul = recorder.name("matmul");
//! for step in 0..3 {
//!     let _step = recorder.step(Step(step));
//!     let _forward = recorder.phase(Phase::Forward);
//!     recorder.allocate(0x1000, 4096, MemoryCategory::Activations);
//!     {
//!         let _matmul = recorder.span(SpanKind::Kernel, matmul).stream(Stream(0)).flops(2 * 64 * 64 * 64);
//!         // … the work itself …
//!     }
//!     recorder.free(0x1000);
//!     recorder.count(Counter::Loss, 4.2);
//! }
//! recorder.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! What runs on a GPU, [`cupti::Activity`] adds.
//!
//! Recording never blocks the program, never ends it, and drops and counts what it has no room for.

mod aside;
mod asked;
mod blocking_call;
pub mod cache;
mod communication;
mod context;
pub mod cupti;
pub mod doctor;
mod error;
mod hand_over;
pub mod injection;
mod launch;
mod launch_notes;
pub mod libraries;
mod lock;
mod names;
mod native_threads;
pub mod nvml;
mod packed;
mod process_context;
mod queue;
pub mod quiet_thread;
mod recorder;
mod scope;
mod settings;
mod shared;
#[cfg(test)]
#[path = "../../tests/support/skipped.rs"]
mod skipped;
mod thread_state;
mod ticks;
mod writer_thread;

pub use context::Context;
pub use error::RecordError;
pub use launch::LaunchInfo;
pub use native_threads::native_threads;
pub use recorder::Recorder;
pub use scope::{Entered, Launching, OpenSpan, Scope};
pub use settings::Settings;
