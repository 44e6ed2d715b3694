//! What one rank says by itself: read once, in pieces, and reduced to figures and to what other ranks ask of it.

pub(crate) mod activity;
pub(crate) mod axes;
pub(crate) mod backward_passes;
mod breakdown;
pub(crate) mod communication;
pub(crate) mod counted_steps;
pub(crate) mod device_samples;
mod held_samples;
pub(crate) mod host;
pub(crate) mod idle_before;
pub(crate) mod intervals;
pub(crate) mod kernel_sums;
mod ledger;
pub(crate) mod memory;
mod partition;
pub(crate) mod reading;
mod recorded_windows;
mod reduce;
pub(crate) mod result;
pub(crate) mod step_counters;
pub(crate) mod step_parts;
pub(crate) mod step_windows;
pub(crate) mod streams;
mod sweep;
pub(crate) mod work;
