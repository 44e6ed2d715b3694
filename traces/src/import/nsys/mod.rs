//! Exports of Nsight Systems: what `nsys export --type sqlite` writes.
//!
//! A file has a session of one machine, with all its processes and GPUs. Which tables and columns are there depends on the
//! version and on what was traced: each is read if it is there. A rank is a process on a device.

mod activities;
mod calls;
mod copy_name;
mod export;
mod metrics;
mod nccl;
mod payload;
mod process;
mod ranges;
mod session;
mod texts;

pub(crate) use export::{is_export, is_report, read};
