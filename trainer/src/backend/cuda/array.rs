//! Where numbers lie in a device's memory.

use crate::backend::DType;

/// Numbers in a device's memory: what kernels and libraries are handed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    /// Where the first one is.
    pub(crate) address: u64,
    /// How many there are.
    pub(crate) elements: usize,
    /// How each is stored.
    pub(crate) dtype: DType,
}

impl Array {
    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        self.elements * self.dtype.bytes()
    }
}

/// What attention has and makes.
#[derive(Clone, Copy)]
pub(crate) struct AttentionArrays {
    /// Rotated queries and keys, and values.
    pub(crate) qkv: Array,
    /// Its output.
    pub(crate) out: Array,
    /// The logarithm of each row's sum: sequences × heads × tokens.
    pub(crate) lse: Array,
}
