//! The gradient of attention, with the probabilities computed again tile by tile.

use std::ops::Range;

use num_traits::{One, Zero};
use pulp::{Simd, WithSimd};

use super::{
    super::{Element, Heads, Real, Scratch, lanes},
    tile::{LONGEST_VECTOR, Mask, TILE, combine, combine_transposed, gather, padded, scatter, scores, transpose},
};

/// The gradient of [`attention`](super::attention), from its results. Overwrites `d_qkv`.
///
/// Gradients of a key head are summed over its query heads, and over their queries, from the first to the last.
pub(crate) fn attention_backward<E: Element>(
    shape: &Heads,
    qkv: &[E],
    out: &[E],
    lse: &[E::Sum],
    d_out: &[E],
    d_qkv: &mut [E],
    scratch: &mut Scratch,
) {
    shape.check(qkv.len(), out.len(), lse.len());
    assert!(d_qkv.len() == qkv.len() && d_out.len() == out.len(), "{shape:?}");
    let tile = TILE * padded(shape.head_dim);
    let whole = shape.sequence.div_ceil(TILE) * tile;
    let [keys, keys_by_column, values_by_column, d_keys, d_values, queries, d_queries, d_sums, probabilities, d_scores] =
        scratch.take([whole, whole, whole, whole, whole, tile, tile, tile, TILE * TILE, TILE * TILE]);
    pulp::Arch::new().dispatch(Backward {
        shape,
        qkv,
        out,
        lse,
        d_out,
        d_qkv,
        keys,
        keys_by_column,
        values_by_column,
        d_keys,
        d_values,
        queries,
        d_queries,
        d_sums,
        probabilities,
        d_scores,
    });
}

struct Backward<'a, E: Element> {
    shape: &'a Heads,
    qkv: &'a [E],
    out: &'a [E],
    lse: &'a [E::Sum],
    d_out: &'a [E],
    d_qkv: &'a mut [E],
    /// Heads of a whole sequence.
    keys: &'a mut [E::Sum],
    keys_by_column: &'a mut [E::Sum],
    values_by_column: &'a mut [E::Sum],
    d_keys: &'a mut [E::Sum],
    d_values: &'a mut [E::Sum],
    /// Heads of a tile of queries; these are already divided by √head_dim, and their gradients are not yet.
    queries: &'a mut [E::Sum],
    d_queries: &'a mut [E::Sum],
    d_sums: &'a mut [E::Sum],
    /// Those of a tile of queries with a tile of keys.
    probabilities: &'a mut [E::Sum],
    d_scores: &'a mut [E::Sum],
}

impl<E: Element> WithSimd for Backward<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<V: Simd>(mut self, simd: V) {
        for sequence in 0..self.shape.batch {
            for kv_head in 0..self.shape.kv_heads {
                self.load_keys(sequence, kv_head);
                for head in self.shape.group(kv_head) {
                    for begin in (0..self.shape.sequence).step_by(TILE) {
                        self.query_tile(simd, sequence, head, begin);
                    }
                }
                self.store_keys(sequence, kv_head);
            }
        }
    }
}

impl<E: Element> Backward<'_, E> {
    #[inline(always)]
    fn load_keys(&mut self, sequence: usize, kv_head: usize) {
        let (shape, stride, width) = (self.shape, self.shape.qkv_width(), padded(self.shape.head_dim));
        let qkv = &self.qkv[shape.span(sequence, stride)];
        // Values are needed by column only, so that their rows take the place of the keys' for a while.
        gather(&qkv[shape.value(kv_head)..], stride, shape.head_dim, E::Sum::one(), self.keys);
        transpose(self.keys, width, self.values_by_column);
        gather(&qkv[shape.key(kv_head)..], stride, shape.head_dim, E::Sum::one(), self.keys);
        transpose(self.keys, width, self.keys_by_column);
        self.d_keys.fill(E::Sum::zero());
        self.d_values.fill(E::Sum::zero());
    }

    #[inline(always)]
    fn store_keys(&mut self, sequence: usize, kv_head: usize) {
        let (shape, stride) = (self.shape, self.shape.qkv_width());
        let d_qkv = &mut self.d_qkv[shape.span(sequence, stride)];
        scatter(self.d_keys, E::Sum::one(), &mut d_qkv[shape.key(kv_head)..], stride, shape.head_dim);
        scatter(self.d_values, E::Sum::one(), &mut d_qkv[shape.value(kv_head)..], stride, shape.head_dim);
    }

    #[inline(always)]
    fn query_tile<V: Simd>(&mut self, simd: V, sequence: usize, head: usize, begin: usize) {
        let (shape, width, column) = (self.shape, padded(self.shape.head_dim), head * self.shape.head_dim);
        let (stride, out_stride) = (shape.qkv_width(), shape.out_width());
        let first = sequence * shape.sequence;
        let tokens = first + begin..first + shape.sequence.min(begin + TILE);
        let rows = Rows::new(shape, head, self.out, self.d_out, self.lse, tokens.clone());
        let query = &self.qkv[tokens.start * stride..tokens.end * stride][column..];
        gather(query, stride, shape.head_dim, shape.scale(), self.queries);
        let d_out = &self.d_out[tokens.start * out_stride..tokens.end * out_stride][column..];
        gather(d_out, out_stride, shape.head_dim, E::Sum::one(), self.d_sums);
        self.d_queries.fill(E::Sum::zero());
        for (key, mask) in Mask::of_tiles(shape, begin) {
            let tile = key * width..(key + TILE) * width;
            scores(simd, self.queries, &self.keys_by_column[tile.clone()], width, mask, self.probabilities);
            scores(simd, self.d_sums, &self.values_by_column[tile.clone()], width, mask, self.d_scores);
            rows.finish(self.probabilities, self.d_scores, mask);
            combine(simd, self.d_scores, &self.keys[tile.clone()], width, mask, self.d_queries);
            combine_transposed(simd, self.d_scores, self.queries, width, mask, &mut self.d_keys[tile.clone()]);
            combine_transposed(simd, self.probabilities, self.d_sums, width, mask, &mut self.d_values[tile]);
        }
        let d_query = &mut self.d_qkv[tokens.start * stride..tokens.end * stride][column..];
        scatter(self.d_queries, shape.scale(), d_query, stride, shape.head_dim);
    }
}

/// What the gradient of a softmax needs of every query of a tile.
struct Rows<S> {
    lse: [S; TILE],
    /// The products of the result's rows with their gradients.
    products: [S; TILE],
}

impl<S: Real> Rows<S> {
    /// Zeros where there are fewer queries, which give finite probabilities and no gradients.
    #[inline(always)]
    fn new<E: Element<Sum = S>>(
        shape: &Heads,
        head: usize,
        out: &[E],
        d_out: &[E],
        lse: &[S],
        tokens: Range<usize>,
    ) -> Rows<S> {
        let mut rows = Rows { lse: [S::zero(); TILE], products: [S::zero(); TILE] };
        for (token, (row_lse, product)) in tokens.zip(rows.lse.iter_mut().zip(&mut rows.products)) {
            *row_lse = lse[token * shape.heads + head];
            let begin = token * shape.out_width() + head * shape.head_dim;
            *product = lanes::dot(&out[begin..begin + shape.head_dim], &d_out[begin..begin + shape.head_dim]);
        }
        rows
    }

    /// Makes probabilities of scores, and with them the scores' gradients of the probabilities' gradients.
    #[inline(always)]
    fn finish(&self, scores: &mut [S], gradients: &mut [S], mask: Mask) {
        let rows = scores.chunks_exact_mut(TILE).zip(gradients.chunks_exact_mut(TILE)).enumerate();
        for ((row, (scores, gradients)), (lse, product)) in rows.zip(self.lse.iter().zip(&self.products)) {
            let valid = mask.valid(row);
            let scores = &mut scores[..valid.next_multiple_of(LONGEST_VECTOR)];
            scores[valid..].fill(S::neg_infinity());
            for (score, gradient) in scores.iter_mut().zip(gradients) {
                *score = (*score - *lse).exponential();
                *gradient = *score * (*gradient - *product);
            }
        }
    }
}
