//! Tensor parallelism: each rank has some rows or columns of every matrix, and partial results are summed.
//!
//! ```text
//! x ─► qkv, gate, up (split by rows)  ─► attention, swiglu ─► output, down (split by columns) ─► sum over ranks
//! ```
//!
//! A sum after the second matrix of each pair, and one of the gradient before the first. What a layer does in between
//! knows nothing of other ranks. With sequence parallelism, each rank has a part of the rows of that sum.

use std::sync::Arc;

use crate::{
    backend::{Stream, Tensor},
    comm::{Communicator, ProcessGroup, Reduction},
};

/// The ranks that share the matrices; `None` for a single one.
#[derive(Clone)]
pub(crate) struct TensorParallel {
    communicator: Arc<dyn Communicator>,
    group: Option<ProcessGroup>,
    /// Whether they share the rows between matrices, too.
    sequence_parallel: bool,
}

impl TensorParallel {
    pub(crate) fn new(
        communicator: Arc<dyn Communicator>,
        group: Option<ProcessGroup>,
        sequence_parallel: bool,
    ) -> TensorParallel {
        TensorParallel { communicator, group, sequence_parallel }
    }

    /// Whether this is the first of them.
    pub(crate) fn is_first(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.index == 0)
    }

    /// Whether each rank has a part of the rows between matrices.
    pub(crate) fn shares_rows(&self) -> bool {
        self.sequence_parallel
    }

    /// All rows, from what each rank has.
    pub(crate) fn gather(&self, stream: Stream, rows: &Tensor, all: &Tensor) {
        if let Some(group) = &self.group {
            self.communicator.all_gather(group, stream, rows, all);
        }
    }

    /// This rank's rows of the sum of all.
    pub(crate) fn reduce_scatter(&self, stream: Stream, all: &Tensor, rows: &Tensor) {
        if let Some(group) = &self.group {
            self.communicator.reduce_scatter(group, stream, all, rows);
        }
    }

    /// Sums partial results. The next operation needs them, so it happens on the compute stream.
    pub(crate) fn sum(&self, partial: &Tensor) {
        self.all_reduce(partial, Reduction::Sum);
    }

    /// The largest of each number.
    pub(crate) fn maximum(&self, values: &Tensor) {
        self.all_reduce(values, Reduction::Maximum);
    }

    fn all_reduce(&self, tensor: &Tensor, reduction: Reduction) {
        if let Some(group) = &self.group {
            self.communicator.all_reduce(group, Stream::Compute, tensor, reduction);
        }
    }
}
