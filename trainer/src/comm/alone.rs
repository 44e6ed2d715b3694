//! The communicator of a single rank.

use std::sync::Arc;

use super::{Communicator, Exchange, ProcessGroup, Reduction};
use crate::backend::{Backend, Stream, Tensor};

/// In a group of one, everybody already has what all have together.
pub(crate) struct Alone(pub(crate) Arc<dyn Backend>);

impl Communicator for Alone {
    fn all_reduce(&self, _: &ProcessGroup, _: Stream, _: &Tensor, _: Reduction) {}

    fn reduce_scatter(&self, _: &ProcessGroup, _: Stream, from: &Tensor, to: &Tensor) {
        self.0.copy(from, to);
    }

    fn all_gather(&self, _: &ProcessGroup, _: Stream, from: &Tensor, to: &Tensor) {
        self.0.copy(from, to);
    }

    fn broadcast(&self, _: &ProcessGroup, _: Stream, _: &Tensor, _: usize) {}

    fn all_to_all(&self, _: &ProcessGroup, _: Stream, from: &Tensor, to: &Tensor, _: &Exchange) {
        self.0.copy(from, to);
    }

    fn send(&self, _: &ProcessGroup, _: Stream, _: &Tensor, _: usize) {}

    fn receive(&self, _: &ProcessGroup, _: Stream, _: &Tensor, _: usize) {}

    fn barrier(&self, _: &ProcessGroup, _: Stream) {}
}
