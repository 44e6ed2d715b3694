//! Cross entropy over a vocabulary of which each rank may hold a part.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels,
    check::{expect, suffix},
    launch::Launch,
    source::Source,
    threads_of_row,
};
use crate::{
    backend::{DType, LossWeights},
    error::TrainError,
};

/// Threads that stream a row, and that sum up the rows' losses.
const ROW_THREADS: usize = 512;
const LOSS_THREADS: usize = 1024;

/// The targets of logits that cover a part of the vocabulary, from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Targets {
    /// The token each row should give.
    pub(crate) tokens: Array,
    /// The first token these logits are of.
    pub(crate) first: u32,
}

/// The rows and columns of logits.
fn shape(logits: Array, rows: usize) -> Result<(usize, usize), TrainError> {
    if logits.elements.is_multiple_of(rows) && (rows > 0) == (logits.elements > 0) {
        return Ok((rows, logits.elements / rows.max(1)));
    }
    Err(TrainError::Disagreement(format!("{} logits in {rows} rows", logits.elements)))
}

impl Kernels {
    /// The largest logit of each row.
    pub(crate) fn row_maxima(&self, stream: CUstream, logits: Array, maxima: Array) -> Result<(), TrainError> {
        let (rows, columns) = shape(logits, maxima.elements)?;
        expect("maxima", maxima, rows, DType::F32)?;
        let launch = Launch::new(rows, threads_of_row(columns, ROW_THREADS));
        let launch = launch.array(logits).size(columns).array(maxima);
        self.start(Source::CrossEntropy, &format!("row_maxima_{}", suffix(logits.dtype)?), launch, stream)
    }

    /// Sums of each row's exponentials, then each target's logit: zero where these logits do not have it.
    pub(crate) fn row_sums(
        &self,
        stream: CUstream,
        logits: Array,
        targets: Targets,
        maxima: Array,
        sums: Array,
    ) -> Result<(), TrainError> {
        let (rows, columns) = shape(logits, maxima.elements)?;
        expect("maxima", maxima, rows, DType::F32)?;
        expect("targets", targets.tokens, rows, DType::U32)?;
        expect("sums", sums, 2 * rows, DType::F32)?;
        let launch = Launch::new(rows, threads_of_row(columns, ROW_THREADS));
        let launch = launch.array(logits).size(columns).array(maxima);
        let launch = launch.array(targets.tokens).size(targets.first as usize).array(sums);
        self.start(Source::CrossEntropy, &format!("row_sums_{}", suffix(logits.dtype)?), launch, stream)
    }

    /// Adds the loss of all rows to one number.
    pub(crate) fn loss(
        &self,
        stream: CUstream,
        maxima: Array,
        sums: Array,
        weights: LossWeights,
        total: Array,
    ) -> Result<(), TrainError> {
        let rows = maxima.elements;
        expect("maxima", maxima, rows, DType::F32)?;
        expect("sums", sums, 2 * rows, DType::F32)?;
        expect("the total", total, 1, DType::F32)?;
        let launch = Launch::new(1, LOSS_THREADS).array(maxima).array(sums).size(rows);
        let launch = launch.double(weights.scale).double(weights.z).array(total);
        self.start(Source::CrossEntropy, "loss", launch, stream)
    }

    /// Its gradient, which may take the place of the logits.
    pub(crate) fn loss_backward(
        &self,
        stream: CUstream,
        logits: Array,
        targets: Targets,
        (maxima, sums): (Array, Array),
        weights: LossWeights,
        d_logits: Array,
    ) -> Result<(), TrainError> {
        let (rows, columns) = shape(logits, maxima.elements)?;
        expect("maxima", maxima, rows, DType::F32)?;
        expect("targets", targets.tokens, rows, DType::U32)?;
        expect("sums", sums, 2 * rows, DType::F32)?;
        expect("d_logits", d_logits, logits.elements, logits.dtype)?;
        let launch = Launch::new(rows, threads_of_row(columns, ROW_THREADS));
        let launch = launch.array(logits).size(columns).array(maxima).array(sums);
        let launch = launch
            .array(targets.tokens)
            .size(targets.first as usize)
            .float(weights.scale as f32)
            .float(weights.z as f32);
        let launch = launch.array(d_logits);
        self.start(Source::CrossEntropy, &format!("loss_backward_{}", suffix(logits.dtype)?), launch, stream)
    }
}
