//! What a rank runs on: everything that differs between a thread on a CPU and a process on a GPU.

use std::sync::Arc;

use stepscope_collector::Recorder;

use crate::{backend::Backend, comm::Communicator};

/// What a rank runs on.
#[derive(Clone)]
pub struct RankParts {
    /// Its device.
    pub backend: Arc<dyn Backend>,
    /// Its way to the others.
    pub communicator: Arc<dyn Communicator>,
    /// What records it.
    pub recorder: Recorder,
}
