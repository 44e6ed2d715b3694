//! Reads exports of Nsight Systems: small ones that are made here in its schema, old and new, and damaged ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Torn, damaged and hostile exports.
mod damage;

/// Makes exports.
mod export;

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

/// What GPUs were sampled for.
mod metrics;

/// What NCCL says of its operations.
mod nccl;

/// Ranks, what they did and who launched it.
mod ranks;

/// What is an export, and what is not.
mod sources;

/// Steps, phases and operators, from ranges.
mod training;
