//! What NCCL says of its operations, through its own interface for profilers: which, of how many bytes, in which group.
//!
//! NCCL looks for a table of functions in the library that `NCCL_PROFILER_PLUGIN` names, of the newest version that it knows:
//!
//! | table | NCCL | what is missing there |
//! |---|---|---|
//! | `ncclProfiler_v2` | 2.24, 2.25 | who is in a group |
//! | `ncclProfiler_v3` | 2.26 | that too, and so the bytes of what is gathered or scattered |
//! | `ncclProfiler_v4` | 2.27 | |
//! | `ncclProfiler_v5` | 2.28 | |
//! | `ncclProfiler_v6` | 2.29 and later | |
//!
//! Operations that a program asks for together become plans, and a plan is one kernel of one communicator. NCCL launches it
//! and tells of the plan right after that, on the same thread: that a plan begins, each of its operations, that it ends.
//! So a plan is of the kernel that its thread launched last, if no plan before it was. What one kernel does of several
//! operations is one event ([`operations`]).
//!
//! Some operations have no plan that NCCL tells of: broadcasts from 2.29 on, and those in memory that all ranks have
//! registered. From 2.28 on NCCL tells of calls too, before it launches: a call that came to no plan is of the one kernel
//! that was launched until it ended.
//!
//! Nothing is said of a kernel that cannot be told for sure. What a CUDA graph launches again NCCL does not tell of, or from
//! a thread that launched nothing. Collectives by copies, without a kernel (zero-CTA), are the copies that they are.

mod calls;
mod communicator;
mod event;
mod here;
mod in_flight;
mod interface;
mod members;
mod operations;
mod recent;

pub(crate) use in_flight::in_flight;
pub(crate) use members::tell;
