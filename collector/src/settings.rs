//! How a rank is recorded.

use std::time::Duration;

/// How a rank is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest time an event waits in memory.
    pub flush_every: Duration,
    /// Memory for the queues of all threads together.
    pub queue_bytes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        // Well under the 250 ms that are promised: a busy machine may let the writer wait for its turn.
        Settings { flush_every: Duration::from_millis(150), queue_bytes: 32 << 20 }
    }
}
