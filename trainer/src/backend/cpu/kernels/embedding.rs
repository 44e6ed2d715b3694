//! The table of token embeddings, of which this rank may hold a part.

use num_traits::Zero;

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

/// Adds the gradients of the tokens' embeddings to the rows of the table. Those of one token are summed first, and
/// rounded once: added to bf16 one by one, those of a frequent token would vanish.
pub(crate) fn embedding_backward<E: Element, G: Element<Sum = E::Sum>>(
    tokens: &[u32],
    d_out: &[E],
    d_table: &mut [G],
    width: usize,
    first: u32,
) {
    assert!(d_out.len() == tokens.len() * width && d_table.len().is_multiple_of(width), "rows of {width}");
    let rows = d_table.len() / width;
    let place = |(at, token): (usize, &u32)| row(*token, first, rows).map(|row| (row, at));
    let mut places: Vec<(usize, usize)> = tokens.iter().enumerate().filter_map(place).collect();
    places.sort_unstable();
    let mut sums = vec![E::Sum::zero(); width];
    vectorised(
        #[inline(always)]
        || {
            for same in places.chunk_by(|(one, _), (other, _)| one == other) {
                sums.fill(E::Sum::zero());
                for (_, at) in same {
                    elementwise::add_inline(&mut sums, &d_out[at * width..][..width]);
                }
                elementwise::add_inline(&mut d_table[same[0].0 * width..][..width], &sums);
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
