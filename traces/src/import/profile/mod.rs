//! What a profiler saw of a rank, whichever it was: what the device did, which calls launched it, what was around those.
//!
//! A reader of a tool's files fills [`Rows`]; [`assemble`] finds out from them where in the training each activity was and
//! who launched it, and makes the rank's tables.

mod annotation;
mod asked_collectives;
mod assemble;
mod emitted;
mod host_operators;
mod launching_calls;
mod memory;
mod messages;
mod named_ranges;
mod names;
mod operator;
mod ordered;
mod origins;
mod places;
mod rows;
mod shared;
mod step_name;
mod step_ranges;

pub(crate) use annotation::TrainingContext;
pub(crate) use assemble::{assemble, assemble_in_pieces, main_device};
pub(crate) use memory::MemoryChange;
pub(crate) use named_ranges::{NamedRange, NamedRanges};
pub(crate) use names::NameBook;
pub(crate) use operator::{FunctionCall, Given, OperatorCall, OptionalNumber, ShapeId};
pub(crate) use rows::{Activity, AskedCollective, AskedMessage, Call, Profile, Rows};
pub(crate) use shared::{Part, ReaderIds};
