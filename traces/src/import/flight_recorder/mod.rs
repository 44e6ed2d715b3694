//! Dumps of PyTorch's Flight Recorder: which collectives a rank asked for, and how far each of them came.
//!
//! A dump is of one rank, as a pickle or as JSON, of versions 2.x. It says when an operation was asked for and when somebody
//! noticed that it was over, and not when it ran on the GPU. So its operations are ranges of the host, and no figure is of them.
//! What was not over is in the rank's note `in_flight`.

mod dump;
mod progress;
mod read;
mod words;

pub(super) use read::{may_be_dump, read};
