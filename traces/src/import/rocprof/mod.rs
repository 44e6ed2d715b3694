//! What rocprofv3, AMD's profiler of ROCm, writes.

mod document;
mod json;
pub(crate) mod rocpd;

pub(crate) use json::{may_be_results, read};
