//! The table of token embeddings, of which this rank may hold a part.

use super::{Element, elementwise, vectorised};

/// Looks up the tokens' rows of a table that holds the vocabulary from `first` on; other tokens get zeros.
pub(crate) fn embedding<E: Element>(tokens: &[u32], table: &[E], out: &mut [E], width: usize, first: u32) {
    assert!(out.len() == tokens.len() * width && table.len().is_multiple_of(width), "rows of {width}");
    for (token, out) in tokens.iter().zip(out.chunks_exact_mut(width)) {
        match row(*token, first, table.len() / width) {
            Some(row) => out.copy_from_slice(&table[row * width..][..width]),
            None => out.fill(E::default()),
        }
    }
}

/// Adds the gradients of the tokens' embeddings to the rows of the table.
pub(crate) fn embedding_backward<E: Element, G: Element<Sum = E::Sum>>(
    tokens: &[u32],
    d_out: &[E],
    d_table: &mut [G],
    width: usize,
    first: u32,
) {
    assert!(d_out.len() == tokens.len() * width && d_table.len().is_multiple_of(width), "rows of {width}");
    let rows = d_table.len() / width;
    vectorised(
        #[inline(always)]
        || {
            for (token, d_out) in tokens.iter().zip(d_out.chunks_exact(width)) {
                if let Some(row) = row(*token, first, rows) {
                    elementwise::add_inline(&mut d_table[row * width..][..width], d_out);
                }
            }
        },
    );
}

/// The row of a token in a table of so many rows from `first` on.
#[inline(always)]
pub(crate) fn row(token: u32, first: u32, rows: usize) -> Option<usize> {
    let row = token.checked_sub(first)? as usize;
    (row < rows).then_some(row)
}
