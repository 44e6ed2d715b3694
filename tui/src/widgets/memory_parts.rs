//! What memory is for, in the order and the colors in which it is shown everywhere.

use stepscope_traces::MemoryCategory;

use super::Part;
use crate::theme::Theme;

/// The categories of some memory, as parts that add up.
pub(crate) fn memory_parts(theme: &Theme, bytes: impl Fn(MemoryCategory) -> u64) -> Vec<Part> {
    let part = |category: &MemoryCategory| Part { mark: theme.category(*category), amount: bytes(*category) as f64 };
    MemoryCategory::ALL.iter().map(part).collect()
}
