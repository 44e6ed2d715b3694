//! PyTorch memory snapshots, from outside: what they say is read, and nothing they say can hurt.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

/// Pickles, and snapshots made of them.
mod pickle_writer;

/// Memory events played again.
mod replay;

/// What each block is for, on histories made by hand.
mod categories;

/// Histories without their beginning, several devices, growing segments, missing times.
mod histories;

/// Says that a test did nothing.
#[path = "../../../tests/support/skipped.rs"]
mod skipped;

/// Real snapshots, and what is known to be in them.
mod real;

/// Files that are cut off, damaged, something else, or made to hurt.
mod hostile;

/// As a run directory.
mod run_directory;
