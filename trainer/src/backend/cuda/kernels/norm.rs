//! Root-mean-square normalization of rows.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    GROUP, Kernels, WARP,
    check::{expect, expect_room, rows, suffix, suffixes},
    launch::Launch,
    source::Source,
    threads_of_row,
};
use crate::{backend::operations::NORM_EPSILON, error::TrainError};

/// Threads of a block of the forward pass at most, and of the backward pass, which holds three rows.
const FORWARD_THREADS: usize = 1024;
const BACKWARD_THREADS: usize = 512;
/// Threads of all blocks together that sum up gradients of the weight: enough to keep a large GPU busy, and the same
/// on all of them, so that the order of sums is too.
const SUMMING_THREADS: usize = 132 * 1024;
/// Threads that add up what those blocks leave, for as many columns as a warp has lanes.
const ADDING_THREADS: usize = 1024;

/// Blocks of the backward pass, each of which leaves a row of sums.
fn summing_blocks(rows: usize, width: usize) -> usize {
    rows.min(SUMMING_THREADS / threads_of_row(width, BACKWARD_THREADS))
}

impl Kernels {
    /// Divides each row by its root mean square and scales it by the weights.
    pub(crate) fn rms_norm(&self, stream: CUstream, x: Array, weight: Array, y: Array) -> Result<(), TrainError> {
        let width = weight.elements;
        let rows = rows("x", x, width)?;
        expect("the weight", weight, width, x.dtype)?;
        expect("y", y, x.elements, x.dtype)?;
        let launch = Launch::new(rows, threads_of_row(width, FORWARD_THREADS));
        let launch = launch.array(x).array(weight).array(y).size(width).float(NORM_EPSILON as f32);
        self.start(Source::Norm, &format!("rms_norm_{}", suffix(x.dtype)?), launch, stream)
    }

    /// What [`Kernels::rms_norm_backward`] needs for rows of a width.
    pub(crate) fn rms_norm_backward_workspace_bytes(rows: usize, width: usize) -> usize {
        summing_blocks(rows, width) * width * size_of::<f32>()
    }

    /// Its gradients, added to `d_x` and to `d_weight`.
    #[expect(clippy::too_many_arguments, reason = "they are what the operation reads and writes")]
    pub(crate) fn rms_norm_backward(
        &self,
        stream: CUstream,
        x: Array,
        weight: Array,
        d_y: Array,
        d_x: Array,
        d_weight: Array,
        workspace: Array,
    ) -> Result<(), TrainError> {
        let width = weight.elements;
        let rows = rows("x", x, width)?;
        expect("the weight", weight, width, x.dtype)?;
        expect("d_y", d_y, x.elements, x.dtype)?;
        expect("d_x", d_x, x.elements, x.dtype)?;
        expect("d_weight", d_weight, width, d_weight.dtype)?;
        expect_room(workspace, Kernels::rms_norm_backward_workspace_bytes(rows, width))?;
        suffixes(x.dtype, d_weight.dtype)?;
        let (blocks, threads) = (summing_blocks(rows, width), threads_of_row(width, BACKWARD_THREADS));
        let is_held = width <= threads * GROUP
            && width.is_multiple_of(GROUP)
            && [x, weight, d_y, d_x].iter().all(|array| array.address.is_multiple_of(16));
        let name = if is_held { "rms_norm_backward_held" } else { "rms_norm_backward" };
        let launch = Launch::new(blocks, threads);
        let launch = launch.array(x).array(weight).array(d_y).array(d_x).array(workspace);
        let launch = launch.size(rows).size(width).float(NORM_EPSILON as f32);
        self.start(Source::Norm, &format!("{name}_{}", suffix(x.dtype)?), launch, stream)?;
        let name = format!("add_partials_{}", suffix(d_weight.dtype)?);
        let launch = Launch::new(width.div_ceil(WARP), ADDING_THREADS);
        let launch = launch.array(workspace).size(blocks).size(width).array(d_weight);
        self.start(Source::Norm, &name, launch, stream)
    }
}
