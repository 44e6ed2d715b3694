//! The operations of a training step, for one thread: deterministic, on row-major slices, in any precision.
//!
//! Operands are stored as `E` and computed with as `E::Sum`; gradients of weights are stored as `G`, which may be wider.

mod adamw;
mod attention;
mod columns;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
pub(crate) mod exponential;
mod heads;
mod lanes;
mod matmul;
mod norm;
mod rope;
mod scratch;
mod swiglu;
#[cfg(test)]
mod tests;
pub(crate) mod vectors;

pub(crate) use self::{
    adamw::adamw,
    attention::{attention, attention_backward, merge_attention},
    columns::columns,
    cross_entropy::{loss, loss_backward, row_maxima, row_sums},
    elementwise::{add, add_squares, convert},
    embedding::{embedding, embedding_backward},
    experts::{balance_loss, combine, combine_backward, count_choices, dispatch, route, route_backward},
    matmul::matmul,
    norm::{rms_norm, rms_norm_backward},
    rope::rope,
    scratch::Scratch,
    swiglu::{swiglu, swiglu_backward},
};

use self::lanes::vectorised;
use super::element::{Element, Real};
use crate::backend::{AdamW, Columns, Direction, Heads, Product};
