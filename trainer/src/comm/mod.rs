//! How ranks talk: collectives and messages, on a stream, in a group.

pub(crate) mod alone;
mod exchange;
mod groups;
pub mod local;
pub(crate) mod nccl;
mod numbering;
mod parcel;
mod reduce;
pub mod tcp;
mod terms;
mod trouble;

pub use exchange::Exchange;
pub use groups::{Groups, ProcessGroup};
use serde::{Deserialize, Serialize};
pub use trouble::{Reason, Trouble};

use crate::backend::{Stream, Tensor};

/// How numbers of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Maximum,
}

/// One rank's way to the others. Operations are queued on a stream, as a backend's are, and done together with the
/// same operation of every other rank of the group: all of them must queue a group's operations in the same order.
///
/// What a rank takes of a tensor of n numbers among p ranks is `stepscope_plan::shard(n, p, index)`. An argument may
/// be the rank's own part of the other argument.
pub trait Communicator: Send + Sync {
    /// Every rank gets the reduction of all tensors, in the place of its own.
    fn all_reduce(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, reduction: Reduction);
    /// Every rank gets its part of the sum of all `from`.
    fn reduce_scatter(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor);
    /// Every rank gets all `from`, one after the other.
    fn all_gather(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor);
    /// Every rank gets what the member `root` has.
    fn broadcast(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, root: usize);
    /// Every rank gets from each member what that one has for it.
    fn all_to_all(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor, exchange: &Exchange);
    /// Hands a copy to the member `to`. The stream may wait until it is taken.
    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize);
    /// Takes the next tensor that the member `from` has sent in this group.
    fn receive(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, from: usize);
    /// Nobody goes on before everybody is here.
    fn barrier(&self, group: &ProcessGroup, stream: Stream);
}
