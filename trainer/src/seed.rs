//! Numbers that look random and follow from others.

/// One number from several, in which every bit of each counts.
pub(crate) fn mixed(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |hash, number| spread(hash ^ number))
}

/// Spreads every bit over all bits: the finaliser of SplitMix64.
fn spread(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
