//! What was allocated at a moment.

use stepscope_traces::MemoryCategory;

use crate::stored::{Damaged, Left, Stored};

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

impl<const PARTS: usize> Stored for MemoryPoint<PARTS> {
    fn put(values: &[&MemoryPoint<PARTS>], into: &mut Vec<u8>) {
        i64::put(&values.iter().map(|point| &point.time_ns).collect::<Vec<_>>(), into);
        <[u64; PARTS]>::put(&values.iter().map(|point| &point.bytes).collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<MemoryPoint<PARTS>>, Damaged> {
        let times = i64::take(count, from)?.into_iter();
        let bytes = <[u64; PARTS]>::take(count, from)?;
        Ok(times.zip(bytes).map(|(time_ns, bytes)| MemoryPoint { time_ns, bytes }).collect())
    }
}
