//! What the ranks of a run say together: one clock for all, who waits for whom, and how much of the devices is used.

pub(crate) mod bubbles;
pub(crate) mod clock;
mod clock_fit;
pub(crate) mod collectives;
pub(crate) mod devices;
pub(crate) mod ended_early;
pub(crate) mod failed_sources;
pub(crate) mod gemms;
pub(crate) mod group_use;
pub(crate) mod host;
pub(crate) mod ideal_schedule;
pub(crate) mod kernel_durations;
pub(crate) mod kernels;
pub(crate) mod launched;
pub(crate) mod layout;
pub(crate) mod messages;
pub(crate) mod mfu;
pub(crate) mod modules;
pub(crate) mod operators;
pub(crate) mod paused;
pub(crate) mod roofline;
pub(crate) mod stages;
pub(crate) mod step_summary;
pub(crate) mod step_time;
pub(crate) mod steps;
pub(crate) mod stragglers;
pub(crate) mod tokens;
