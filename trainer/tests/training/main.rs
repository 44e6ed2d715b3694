//! The trainer as a job whose truth is known, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

/// Checkpoints: going on as if nothing had happened, and the state of all ranks put together.
mod checkpoints;
/// Ranks send each other what the plan says.
mod communication;
/// The GPU trains as the CPU does.
mod cuda;
/// Every layout trains as a single rank does, and every run as the one before.
mod equivalence;
/// Mixtures of experts, which replicas share.
mod experts;
/// Memory is what the plan says.
mod memory;
/// Ranks on GPUs train as a single one does, and end together.
mod nccl;
/// Ranks that are processes train as threads do, and end together.
mod processes;
/// What is recorded says what it is.
mod recording;
/// Says that a test did nothing.
#[path = "../../../tests/support/skipped.rs"]
mod skipped;
/// What goes wrong is said.
mod trouble;

mod support;
