//! Asks every process of a job where it is.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use stepscope_traces::Nanos;

use super::left;

/// What it is called in a run.
pub const DUMP_REQUEST_FILE: &str = "dump.json";

/// Asks every process of a job where its threads are, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpRequest {
    /// Nanoseconds since 1970, UTC. A later one is another one.
    pub wall_ns: Nanos,
    /// Whether what was said before holds no more: the job goes on.
    pub is_over: bool,
}

impl DumpRequest {
    /// Leaves it in a run, in place of an older one.
    pub fn leave(&self, run: &Path) -> io::Result<()> {
        left::leave(self, run, DUMP_REQUEST_FILE)
    }

    /// The one that was left in a run, if any was. What cannot be understood is none.
    pub fn find(run: &Path) -> Option<DumpRequest> {
        left::find(run, DUMP_REQUEST_FILE)
    }
}
