//! The table of token embeddings, of which this rank may hold a part.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    GROUP, Kernels, THREADS, blocks_of_rows,
    check::{expect, rows, suffix, suffixes},
    launch::Launch,
    source::Source,
    threads_of_row,
};
use crate::{backend::DType, error::TrainError};

/// Tokens that a thread of the backward pass looks at in one go: those that its text says.
const TOKENS_OF_THREAD: usize = 16;

impl Kernels {
    /// Looks tokens up in a table that holds the vocabulary from `first` on; others give zeros.
    pub(crate) fn embedding(
        &self,
        stream: CUstream,
        tokens: Array,
        table: Array,
        out: Array,
        width: usize,
        first: u32,
    ) -> Result<(), TrainError> {
        let (table_rows, count) = (rows("the table", table, width)?, tokens.elements);
        expect("the tokens", tokens, count, DType::U32)?;
        expect("the embeddings", out, count * width, table.dtype)?;
        let launch = Launch::new(blocks_of_rows(count, width), THREADS).array(tokens).array(table).array(out);
        let launch = launch.size(count).size(width).size(table_rows).size(first as usize);
        self.start(Source::Embedding, &format!("embedding_{}", suffix(out.dtype)?), launch, stream)
    }

    /// Adds each token's gradients to its row, summed over its positions first.
    pub(crate) fn embedding_backward(
        &self,
        stream: CUstream,
        tokens: Array,
        d_out: Array,
        d_table: Array,
        width: usize,
        first: u32,
    ) -> Result<(), TrainError> {
        let (table_rows, count) = (rows("the table's gradient", d_table, width)?, tokens.elements);
        expect("the tokens", tokens, count, DType::U32)?;
        expect("the embeddings' gradient", d_out, count * width, d_out.dtype)?;
        let name = format!("embedding_backward_{}", suffixes(d_out.dtype, d_table.dtype)?);
        let threads = threads_of_row(width, THREADS);
        let launch = Launch::grid([count, width.div_ceil(GROUP * threads), 1], threads);
        let launch = launch.shared(threads * TOKENS_OF_THREAD * size_of::<u32>());
        let launch = launch.array(tokens).array(d_out).array(d_table);
        let launch = launch.size(count).size(width).size(table_rows).size(first as usize);
        self.start(Source::Embedding, &name, launch, stream)
    }
}
