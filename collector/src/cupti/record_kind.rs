//! CUPTI's numbers for the kinds of records that are read.

use cudarc::cupti::sys::CUpti_ActivityKind as Kind;

pub(crate) const COPY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMCPY as u32;
pub(crate) const SET: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMSET as u32;
pub(crate) const DRIVER_CALL: u32 = Kind::CUPTI_ACTIVITY_KIND_DRIVER as u32;
pub(crate) const RUNTIME_CALL: u32 = Kind::CUPTI_ACTIVITY_KIND_RUNTIME as u32;
pub(crate) const KERNEL: u32 = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32;
pub(crate) const PEER_COPY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMCPY2 as u32;
pub(crate) const MEMORY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMORY2 as u32;
pub(crate) const POOL: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMORY_POOL as u32;
pub(crate) const GRAPH: u32 = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE as u32;
