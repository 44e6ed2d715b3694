//! The gated activation of the feed-forward layers.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS, blocks_of_rows,
    check::{expect, rows, suffix},
    launch::Launch,
    source::Source,
};
use crate::error::TrainError;

impl Kernels {
    /// `silu(gate) · up`; a row of `gate_up` is `width` elements of gate, then as many of up.
    pub(crate) fn swiglu(
        &self,
        stream: CUstream,
        gate_up: Array,
        product: Array,
        width: usize,
    ) -> Result<(), TrainError> {
        let rows = rows("the product", product, width)?;
        expect("gate_up", gate_up, 2 * product.elements, product.dtype)?;
        let launch = Launch::new(blocks_of_rows(rows, width), THREADS);
        let launch = launch.array(gate_up).array(product).size(rows).size(width);
        self.start(Source::Swiglu, &format!("swiglu_{}", suffix(product.dtype)?), launch, stream)
    }

    /// Its gradient.
    pub(crate) fn swiglu_backward(
        &self,
        stream: CUstream,
        gate_up: Array,
        d_product: Array,
        d_gate_up: Array,
        width: usize,
    ) -> Result<(), TrainError> {
        let rows = rows("the product's gradient", d_product, width)?;
        expect("gate_up", gate_up, 2 * d_product.elements, d_product.dtype)?;
        expect("d_gate_up", d_gate_up, gate_up.elements, gate_up.dtype)?;
        let launch = Launch::new(blocks_of_rows(rows, width), THREADS);
        let launch = launch.array(gate_up).array(d_product).array(d_gate_up).size(rows).size(width);
        self.start(Source::Swiglu, &format!("swiglu_backward_{}", suffix(d_product.dtype)?), launch, stream)
    }
}
