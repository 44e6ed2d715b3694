//! The run directory, from outside: what is written is read, whatever happens in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Every event that can be recorded, and runs made of them.
mod events;

/// What the writer writes, the reader and the follower read.
mod round_trip;

/// Reading piece by piece.
mod pieces;

/// Torn and damaged files: nothing panics, nothing wrong is read, what is lost is counted.
mod damage;

/// Every file, by the fuzzer.
mod fuzzed;

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Who may write where, and which versions are read.
mod directory;

/// Other people's Arrow readers open the files.
mod stock_readers;

/// Where only the last minutes are kept.
mod ring;

/// The generator tells the truth.
mod synthetic;
