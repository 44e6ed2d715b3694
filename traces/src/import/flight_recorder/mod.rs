//! Dumps of PyTorch's Flight Recorder: which collectives a rank asked for, and how far each of them came.
//!
//! A dump is of one rank, as a pickle or as JSON, of versions 2.x. It says when an operation was asked for and when somebody
//! noticed that it was over, and not when it ran on the GPU. So its operations are ranges of the host, and no figure is of them.
//! What was not over is in the rank's note `in_flight`.

mod dump;
mod progress;
mod read;
mod words;

use crate::notes::InFlight;

pub(super) use read::{may_be_dump, read};

/// Of a dump that is asked for while its program runs, so many collectives that are over are kept.
const COMPLETED_OF_LIVE: usize = 64;

/// How far a rank has come, by a pickled dump that its program has just made; none, if it cannot be read or the recorder is off.
pub fn in_flight(pickle: &[u8]) -> Option<InFlight> {
    let dump = dump::Dump::of_pickle(pickle).ok().filter(|dump| !dump.entries.is_empty())?;
    let mut progress = progress::progress(&dump);
    progress.completed.drain(..progress.completed.len().saturating_sub(COMPLETED_OF_LIVE));
    Some(progress)
}
