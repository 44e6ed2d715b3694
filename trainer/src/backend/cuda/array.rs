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
