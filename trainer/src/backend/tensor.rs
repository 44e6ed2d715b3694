//! Memory of a device, as the host names it.

use std::{any::Any, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};
use stepscope_plan::Precision;

/// How a number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    /// Two bytes: the upper half of an `f32`.
    Bf16,
    /// Four bytes.
    F32,
    /// Eight bytes: for checks, where rounding must not matter.
    F64,
    /// A token.
    U32,
}

impl DType {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bf16 => 2,
            DType::F32 | DType::U32 => 4,
            DType::F64 => 8,
        }
    }

    /// What sums of such numbers are kept in.
    pub fn sum(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }
}

impl From<Precision> for DType {
    fn from(precision: Precision) -> DType {
        match precision {
            Precision::Bf16 => DType::Bf16,
            Precision::Fp32 => DType::F32,
        }
    }
}

/// A block of a device's memory, or a part of one. The block is freed, in stream order, when the last of its tensors
/// is dropped.
#[derive(Clone)]
pub struct Tensor {
    block: Arc<dyn Any + Send + Sync>,
    /// In elements of `dtype`, from the beginning of the block.
    range: Range<usize>,
    dtype: DType,
}

impl Tensor {
    /// All of a block, which only the backend that made it can look into.
    pub(crate) fn new(block: Arc<dyn Any + Send + Sync>, elements: usize, dtype: DType) -> Tensor {
        Tensor { block, range: 0..elements, dtype }
    }

    /// How many numbers it has.
    pub fn elements(&self) -> usize {
        self.range.len()
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> u64 {
        (self.range.len() * self.dtype.bytes()) as u64
    }

    /// How they are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A part of it, by elements.
    ///
    /// # Panics
    /// When it does not have that part.
    pub fn slice(&self, part: Range<usize>) -> Tensor {
        assert!(part.start <= part.end && part.end <= self.elements(), "{part:?} of {} elements", self.elements());
        let range = self.range.start + part.start..self.range.start + part.end;
        Tensor { block: self.block.clone(), range, dtype: self.dtype }
    }

    /// The backend's own block, and which of its elements these are.
    pub(crate) fn block<T: 'static>(&self) -> Option<(&T, Range<usize>)> {
        self.block.downcast_ref().map(|block| (block, self.range.clone()))
    }
}
