//! Traces of PyTorch's profiler, which is called Kineto.
//!
//! A file is unpacked by one thread and read by others, event by event and in any size; what is kept is what devices did,
//! which calls launched it, what the program called it, and its memory.

mod bytes;
mod collect;
mod collective;
mod cursor;
mod decimal;
mod digits;
mod document;
mod event;
mod header;
mod layout;
mod one_process;
mod open;
mod opening;
mod operator_arguments;
mod pairs;
mod plain;
mod shared;
mod skip;
mod tail;
mod trace;
mod value;

pub(crate) use open::{look_at, run_of};
pub(crate) use opening::Opening;
pub(crate) use trace::KinetoTrace;
