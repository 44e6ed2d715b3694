//! How the recorder of a rank was set up.

use serde_json::{Map, Value};

use super::field::NoteField;

const FLUSH_EVERY: &str = "flush_every_ms";
const QUEUE_BYTES: &str = "queue_bytes";

/// How the recorder of a rank was set up: two numbers, each under a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// How often it writes to its files.
    pub flush_every_ms: u64,
    /// How much memory the queues of the program's threads may take.
    pub queue_bytes: u64,
}

impl NoteField for RecorderSettings {
    fn take(map: &mut Map<String, Value>, _: &str) -> Option<RecorderSettings> {
        let number = |key: &str| map.get(key)?.as_u64();
        let settings = RecorderSettings { flush_every_ms: number(FLUSH_EVERY)?, queue_bytes: number(QUEUE_BYTES)? };
        map.remove(FLUSH_EVERY);
        map.remove(QUEUE_BYTES);
        Some(settings)
    }

    fn put(&self, map: &mut Map<String, Value>, _: &str) {
        map.insert(FLUSH_EVERY.into(), self.flush_every_ms.into());
        map.insert(QUEUE_BYTES.into(), self.queue_bytes.into());
    }
}
