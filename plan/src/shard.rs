//! Sharding, which is one function.

use std::ops::Range;

/// Which of `elements` the shard `index` of `parts` holds: equal shards from the front, so that a reduce-scatter needs
/// no table; the last ones may be shorter, or empty.
pub fn shard(elements: u64, parts: u64, index: u64) -> Range<u64> {
    let length = elements.div_ceil(parts.max(1));
    let start = length.saturating_mul(index).min(elements);
    start..start.saturating_add(length).min(elements)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shards_are_a_partition(elements in 0..1_u64 << 50, parts in 1..5000_u64) {
            let mut next = 0;
            for index in 0..parts {
                let shard = shard(elements, parts, index);
                prop_assert_eq!(shard.start, next.min(elements));
                prop_assert!(shard.end - shard.start <= elements.div_ceil(parts));
                next = shard.end;
            }
            prop_assert_eq!(next, elements);
        }
    }
}
