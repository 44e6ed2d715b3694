//! Traces for ui.perfetto.dev, as protobuf, packet by packet.
//!
//! A rank is a group of tracks, a stream is a track of it, and a span is a slice there, inside of the modules around it and of
//! the operator that launched it. The row of a rank itself has its steps, with the figures of each. Above the streams are
//! steps, micro-batches, phases and layers as the device sees them, and what an analysis found: bubbles, exposed
//! communication, peaks. Below them is what the host annotated and called, and memory and what a device says of itself, as
//! counters.
//! Collectives are tied together across ranks by flows, and so are messages, and launches with what they launched.
//!
//! **Why kernels are track events.** Perfetto has a form of its own for work of GPUs, `GpuRenderStageEvent`, and since
//! 2026 it may name a compute kernel, its grid and its launch. We looked at how version 58 reads and shows both:
//!
//! - Render stages are tracks of a GPU's hardware queues, merged over all processes, and shown a second time below
//!   each process in a group of its own. Annotations, streams and bubbles of a rank cannot be put in one order around
//!   them. Track events are shown where we say.
//! - A flow begins and ends at track events. Render stages are tied to launches of the host and to what they wait for, and
//!   to nothing of another process, so a collective would not be one thing across its ranks.
//! - Arguments of compute kernels are an extension of the schema that is not stable and that older versions drop. Arguments
//!   of track events are stable, typed, and in the same tables as those of everything else: one query has kernels of
//!   CPU and GPU runs, collectives and annotations.
//! - What render stages give in return is the "GPU compute" tab, whose figures are hardware counters that a run does not
//!   have.
//!
//! **How it stays small and in order.** Each track is a sequence of packets: names and arguments are numbers of texts that
//! the sequence was told once, and what is the same in all of it stands at its beginning (`sequence` has the arithmetic).
//! Where arguments would take too much, categories say the phase and the layer. Beginnings and ends of a track are in the
//! order of time (see `slices` for spans that overlap, and `order` for those that are recorded late). Memory is bounded
//! whatever the length of the run.

mod arguments;
mod counters;
mod detail;
mod error;
mod event;
mod exposed;
mod frames;
mod labels;
mod launches;
mod marks;
mod memory;
mod order;
mod packets;
mod parents;
mod plan;
mod schema;
mod sequence;
mod slices;
mod spans;
mod text;
mod timing;
mod trace;
mod tracks;
mod writing;
mod written;

pub use detail::{Detail, Level};
pub use error::ExportError;
pub use marks::{Fact, Mark, NamedStretch, Stretches};
pub use plan::{Note, RankPlan, Series, TracePlan};
pub use trace::Trace;
pub use tracks::Unit;
pub use written::Written;
