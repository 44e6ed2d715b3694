//! What runs on an NVIDIA GPU, as CUPTI sees it: kernels, copies, fills, and memory if asked for.
//!
//! [`Activity::start`] attaches CUPTI to the process and [`Activity::finish`] detaches it again; in between, whatever the
//! device does becomes spans of the recorder, in its clock.
//!
//! Two streams of data meet on a thread of our own. CUPTI fills buffers with records of what ran, and says of each which
//! call launched it. The threads that launch leave a note of each such call: where in the training they are, and what
//! [`Recorder::launching`](crate::Recorder::launching) said of it. Joined, a kernel knows its step, phase, layer and FLOPs.
//! CUPTI's own way to do that needs a record of every call, which is what makes tracing slow; it is used only while another
//! profiler of the process keeps CUPTI's callbacks.
//!
//! A library that launches kernels of its own may say only afterwards what they were ([`LatestKernel`]): that is a note, too.
//!
//! The driver's own calls for memory are watched as well, and the modules it loads: so much of the device each library has
//! beside the program's allocator ([`held_memory`], [`driver_memory`], [`modules`]).
//!
//! So are calls that block the host ([`blocking_calls`]): they tell why a device is idle.
//!
//! Memory that a program hands out in order of a stream ([`Activity::order_memory_by`]) takes the same way: events and
//! launches of a thread come in the order in which it made them, so each event is between two launches, and gets its time
//! when those have run.

mod activity;
mod blocking_calls;
mod buffers;
mod callbacks;
mod calls;
mod clock;
mod cubin;
mod demangle;
mod drain;
mod driver_memory;
mod groups;
mod held_memory;
mod holders;
mod join;
mod latest_kernel;
mod library;
mod memory;
mod memory_order;
mod modules;
mod names;
mod record_form;
mod record_kind;
mod records;
mod repeated;
mod short_calls;
mod streams;
mod subscriber;
mod thread_order;
mod traced;
mod translator;
mod unavailable;
mod watched_calls;

pub use activity::Activity;
pub use latest_kernel::LatestKernel;
pub use traced::Traced;
pub use unavailable::Unavailable;
