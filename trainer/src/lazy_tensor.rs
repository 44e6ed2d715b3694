//! Memory that is taken when it is first needed.

use std::sync::{Arc, OnceLock};

use stepscope_traces::MemoryCategory;

use crate::backend::{Backend, DType, Tensor};

/// A tensor of zeros that takes its memory when it is first needed.
pub(crate) struct LazyTensor {
    backend: Arc<dyn Backend>,
    elements: usize,
    dtype: DType,
    category: MemoryCategory,
    taken: OnceLock<Tensor>,
}

impl LazyTensor {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        elements: usize,
        dtype: DType,
        category: MemoryCategory,
    ) -> LazyTensor {
        LazyTensor { backend, elements, dtype, category, taken: OnceLock::new() }
    }

    /// How many numbers it has, or will have.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// How they are stored.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The tensor.
    pub(crate) fn get(&self) -> &Tensor {
        self.taken.get_or_init(|| {
            let tensor = self.backend.allocate(self.elements, self.dtype, self.category);
            self.backend.zero(&tensor);
            tensor
        })
    }

    /// Makes it zeros again.
    pub(crate) fn clear(&self) {
        self.taken.get().into_iter().for_each(|tensor| self.backend.zero(tensor));
    }
}
