//! What was allocated at a moment.

use stepscope_traces::MemoryCategory;

/// What was allocated at a time, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPoint<const PARTS: usize = { MemoryCategory::ALL.len() }> {
    /// When, in the rank's clock.
    pub time_ns: i64,
    /// How much, in the order of the parts: that of [`MemoryCategory::ALL`], where they are categories.
    pub bytes: [u64; PARTS],
}

impl<const PARTS: usize> MemoryPoint<PARTS> {
    /// All parts together.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}
