//! Strategies that spread training over ranks, one axis of the grid a file.

pub(crate) mod context;
pub(crate) mod data;
pub(crate) mod expert;
pub(crate) mod pipeline;
#[cfg(test)]
mod rendezvous_check;
pub(crate) mod tensor;
pub(crate) mod zero;
