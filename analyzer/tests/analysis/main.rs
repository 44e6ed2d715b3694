//! Whole analyses, from outside: of runs small enough to check on paper, of runs with known answers, and of real ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Damaged copies of real inputs, and what reading one may cost.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Runs by hand.
mod support;

/// A run checked on paper.
mod by_hand;

/// What changed between two runs.
mod diff;

/// What stands out, and what does not.
mod findings;

/// What programs did on the host.
mod host;

/// Kernels by who launched them, and their FLOPs.
mod launched;
mod places;

/// Programs that were recorded as they are.
mod recorded;

/// Summaries of ranks.
mod summarized;

/// Runs of the generator: what it says is the truth.
mod synthetic;

/// Runs of the trainer: what theory says is there.
mod trained;

/// Runs that are damaged, empty or odd.
mod trouble;

/// Traces that do not say who communicates with whom.
mod without_groups;
