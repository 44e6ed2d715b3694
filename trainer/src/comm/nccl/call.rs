//! What NCCL is asked to do: worked out from tensors, and looked at, before it is asked.

use crate::{
    backend::{DType, cuda::Array},
    comm::Reduction,
    error::TrainError,
};

/// One thing to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) verb: Verb,
    /// Where the numbers are that this rank gives; of a receive, nothing.
    pub(super) from: u64,
    /// Where those go that it gets; of a send, nothing.
    pub(super) to: u64,
    /// How many there are, as NCCL counts: of the smaller side.
    pub(super) count: usize,
    pub(super) dtype: DType,
}

/// What to ask for. Members are counted in their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    AllReduce(Reduction),
    ReduceScatter,
    AllGather,
    Broadcast { root: usize },
    Send { to: usize },
    Receive { from: usize },
}

impl Call {
    /// In place.
    pub(super) fn all_reduce(tensor: Array, reduction: Reduction) -> Call {
        Call::in_place(Verb::AllReduce(reduction), tensor)
    }

    pub(super) fn broadcast(tensor: Array, root: usize) -> Call {
        Call::in_place(Verb::Broadcast { root }, tensor)
    }

    pub(super) fn send(tensor: Array, to: usize) -> Call {
        Call { to: 0, ..Call::in_place(Verb::Send { to }, tensor) }
    }

    pub(super) fn receive(tensor: Array, from: usize) -> Call {
        Call { from: 0, ..Call::in_place(Verb::Receive { from }, tensor) }
    }

    /// Members get equal parts: NCCL knows no others.
    pub(super) fn reduce_scatter(from: Array, to: Array, members: usize) -> Result<Call, TrainError> {
        parts_fit(&from, &to, members)?;
        Ok(Call::between(Verb::ReduceScatter, from, to, to.elements))
    }

    /// Members give equal parts.
    pub(super) fn all_gather(from: Array, to: Array, members: usize) -> Result<Call, TrainError> {
        parts_fit(&to, &from, members)?;
        Ok(Call::between(Verb::AllGather, from, to, from.elements))
    }

    fn in_place(verb: Verb, tensor: Array) -> Call {
        Call::between(verb, tensor, tensor, tensor.elements)
    }

    fn between(verb: Verb, from: Array, to: Array, count: usize) -> Call {
        Call { verb, from: from.address, to: to.address, count, dtype: from.dtype }
    }
}

fn parts_fit(whole: &Array, part: &Array, members: usize) -> Result<(), TrainError> {
    if whole.dtype == part.dtype && whole.elements == part.elements * members {
        return Ok(());
    }
    let (Array { elements, dtype, .. }, Array { elements: of_part, dtype: in_part, .. }) = (whole, part);
    Err(TrainError::Disagreement(format!(
        "{elements} {dtype:?} are not {members} parts of {of_part} {in_part:?}, which NCCL takes"
    )))
}
