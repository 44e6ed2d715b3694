//! Parts of a tensor as one message, and back.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use stepscope_traces::Rank;

use super::terms;
use crate::{
    backend::cpu::{Element, View},
    error::TrainError,
};

/// Puts parts of a tensor together.
pub(crate) fn pack<E: Element>(from: &View, parts: &[Range<usize>]) -> Result<Vec<u8>, TrainError> {
    let mut message = Vec::new();
    for part in parts {
        message.extend_from_slice(cast_slice::<E, u8>(&from.slice(part.clone()).read::<E>()?));
    }
    Ok(message)
}

/// Takes apart what a rank sent.
pub(crate) fn unpack<E: Element>(
    message: &[u8],
    to: &View,
    parts: &[Range<usize>],
    from: Rank,
) -> Result<(), TrainError> {
    let elements: usize = parts.iter().map(ExactSizeIterator::len).sum();
    terms::check_length(from, message.len(), (elements * size_of::<E>()) as u64)?;
    let mut rest = message;
    for part in parts {
        let (here, after) = rest.split_at(part.len() * size_of::<E>());
        cast_slice_mut::<E, u8>(&mut to.slice(part.clone()).write::<E>()?).copy_from_slice(here);
        rest = after;
    }
    Ok(())
}
