//! What arrays have to be like before a kernel is given them.

use super::super::array::Array;
use crate::{backend::DType, error::TrainError};

/// How many numbers of which kind an array should have.
pub(super) fn expect(what: &str, array: Array, elements: usize, dtype: DType) -> Result<(), TrainError> {
    if array.elements == elements && array.dtype == dtype {
        return Ok(());
    }
    let Array { elements: actual, dtype: stored, .. } = array;
    Err(TrainError::Disagreement(format!("{what} is {actual} of {stored:?}, not {elements} of {dtype:?}")))
}

/// Checks that a workspace has at least this many bytes.
pub(super) fn expect_room(workspace: Array, bytes: usize) -> Result<(), TrainError> {
    let room = workspace.elements * workspace.dtype.bytes();
    if room >= bytes && workspace.address.is_multiple_of(16) {
        return Ok(());
    }
    Err(TrainError::Disagreement(format!("a workspace has {room} bytes at {:#x}, not {bytes}", workspace.address)))
}

/// How many rows of a width there are.
pub(super) fn rows(what: &str, array: Array, width: usize) -> Result<usize, TrainError> {
    if width > 0 && array.elements.is_multiple_of(width) {
        return Ok(array.elements / width);
    }
    Err(TrainError::Disagreement(format!("{what} of {} elements has no rows of {width}", array.elements)))
}

/// What kernels call a way to store numbers to compute with.
pub(super) fn suffix(dtype: DType) -> Result<&'static str, TrainError> {
    match dtype {
        DType::Bf16 => Ok("bf16"),
        DType::F32 => Ok("f32"),
        DType::F64 | DType::U32 => Err(TrainError::Disagreement(format!("the GPU does not compute with {dtype:?}"))),
    }
}

/// The same for what computes and what stores its gradients, which is at least as wide.
pub(super) fn suffixes(dtype: DType, gradient: DType) -> Result<String, TrainError> {
    if dtype == DType::F32 && gradient == DType::Bf16 {
        return Err(TrainError::Disagreement(format!("{gradient:?} cannot hold what {dtype:?} computes")));
    }
    Ok(format!("{}_{}", suffix(dtype)?, suffix(gradient)?))
}
