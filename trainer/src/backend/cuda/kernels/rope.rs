//! Rotary position embedding.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS,
    check::{expect, suffix},
    launch::Launch,
    source::Source,
};
use crate::{
    backend::{Direction, Heads, operations::ROPE_BASE},
    error::TrainError,
};

impl Kernels {
    /// Rotates queries and keys by their position, in place; positions of each sequence begin with `first`.
    pub(crate) fn rope(
        &self,
        stream: CUstream,
        heads: Heads,
        first: usize,
        qkv: Array,
        direction: Direction,
    ) -> Result<(), TrainError> {
        expect("qkv", qkv, heads.tokens() * heads.qkv_width(), qkv.dtype)?;
        if !heads.head_dim.is_multiple_of(2) {
            return Err(TrainError::Disagreement(format!("heads of {} have no pairs", heads.head_dim)));
        }
        let sign = match direction {
            Direction::Forward => 1.0,
            Direction::Backward => -1.0,
        };
        let positions = if heads.batch == 0 { 0 } else { heads.sequence };
        let launch = Launch::new(positions, THREADS).shared(heads.head_dim * size_of::<f32>()).array(qkv);
        let launch = launch.size(heads.batch).size(heads.sequence).size(first).size(heads.qkv_width());
        let launch = launch.size(heads.heads + heads.kv_heads).size(heads.head_dim).double(ROPE_BASE).double(sign);
        self.start(Source::Rope, &format!("rope_{}", suffix(qkv.dtype)?), launch, stream)
    }
}
