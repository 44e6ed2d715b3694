//! Operations on every element by itself, of whole arrays or of columns of their rows.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS, blocks, blocks_of_rows,
    check::{expect, rows, suffix},
    launch::Launch,
    source::Source,
};
use crate::{backend::Columns, error::TrainError};

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

    /// Copies columns of all rows, or adds them, converting between forms of storage.
    pub(crate) fn columns(&self, stream: CUstream, columns: Columns, from: Array, to: Array) -> Result<(), TrainError> {
        let Columns { count, from: (from_width, from_first), to: (to_width, to_first), accumulate } = columns;
        let rows = rows("what columns are of", from, from_width)?;
        expect("what columns go to", to, rows * to_width, to.dtype)?;
        if from_first + count > from_width || to_first + count > to_width {
            return Err(TrainError::Disagreement(format!("{columns:?} are not in their rows")));
        }
        let name = format!("columns_{}_{}", suffix(from.dtype)?, suffix(to.dtype)?);
        let launch = Launch::new(blocks_of_rows(rows, count), THREADS).array(from).array(to).size(rows).size(count);
        let launch = launch.size(from_width).size(from_first).size(to_width).size(to_first);
        self.start(Source::Elementwise, &name, launch.size(accumulate.into()), stream)
    }
}
