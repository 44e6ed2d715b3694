//! Operations on every element by itself.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS, blocks,
    check::{expect, suffix},
    launch::Launch,
    source::Source,
};
use crate::error::TrainError;

impl Kernels {
    /// Copies numbers into another form of storage.
    pub(crate) fn convert(&self, stream: CUstream, from: Array, to: Array) -> Result<(), TrainError> {
        expect("what is converted", from, to.elements, from.dtype)?;
        let name = format!("convert_{}_{}", suffix(from.dtype)?, suffix(to.dtype)?);
        let launch = Launch::new(blocks(to.elements), THREADS).array(from).array(to).size(to.elements);
        self.start(Source::Elementwise, &name, launch, stream)
    }

    /// target += other.
    pub(crate) fn add(&self, stream: CUstream, target: Array, other: Array) -> Result<(), TrainError> {
        expect("what is added", other, target.elements, target.dtype)?;
        let name = format!("add_{}", suffix(target.dtype)?);
        let launch = Launch::new(blocks(target.elements), THREADS).array(target).array(other).size(target.elements);
        self.start(Source::Elementwise, &name, launch, stream)
    }
}
