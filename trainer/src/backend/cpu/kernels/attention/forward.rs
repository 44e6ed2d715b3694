//! Attention, with the softmax kept up to date tile by tile.

use num_traits::{Float, One, Zero};
use pulp::{Simd, WithSimd};

use super::{
    super::{Element, Heads, Real, Scratch},
    tile::{LONGEST_VECTOR, Mask, TILE, combine, gather, padded, scores, transpose},
};

/// out = softmax(q · kᵀ / √head_dim, of keys up to the query's own position, or of all) · v, and for the backward pass the
/// logarithm of every row's sum of exponentials.
pub(crate) fn attention<E: Element>(
    shape: &Heads,
    qkv: &[E],
    out: &mut [E],
    lse: &mut [E::Sum],
    scratch: &mut Scratch,
) {
    shape.check(qkv.len(), out.len(), lse.len());
    let width = padded(shape.head_dim);
    let whole = shape.sequence.next_multiple_of(TILE) * width;
    let [rows, keys, values, queries, sums, scores] =
        scratch.take([whole, whole, whole, TILE * width, TILE * width, TILE * TILE]);
    let forward = Forward { shape, qkv, out, lse, rows, keys, values, queries, sums, scores };
    pulp::Arch::new().dispatch(forward);
}

struct Forward<'a, E: Element> {
    shape: &'a Heads,
    qkv: &'a [E],
    out: &'a mut [E],
    lse: &'a mut [E::Sum],
    /// A head of a sequence by rows, on the way to columns.
    rows: &'a mut [E::Sum],
    /// A head of a sequence by columns, tile by tile.
    keys: &'a mut [E::Sum],
    /// A head of a sequence by rows.
    values: &'a mut [E::Sum],
    /// A tile of a head's queries, already divided by √head_dim.
    queries: &'a mut [E::Sum],
    /// What is to become the result of a tile of queries.
    sums: &'a mut [E::Sum],
    /// Those of a tile of queries with a tile of keys, then their exponentials.
    scores: &'a mut [E::Sum],
}

impl<E: Element> WithSimd for Forward<'_, E> {
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
            }
        }
    }
}

impl<E: Element> Forward<'_, E> {
    #[inline(always)]
    fn load_keys(&mut self, sequence: usize, kv_head: usize) {
        let shape = self.shape;
        let qkv = &self.qkv[shape.span(sequence, shape.qkv_width())];
        gather(&qkv[shape.key(kv_head)..], shape.qkv_width(), shape.head_dim, E::Sum::one(), self.rows);
        transpose(self.rows, padded(shape.head_dim), self.keys);
        gather(&qkv[shape.value(kv_head)..], shape.qkv_width(), shape.head_dim, E::Sum::one(), self.values);
    }

    #[inline(always)]
    fn query_tile<V: Simd>(&mut self, simd: V, sequence: usize, head: usize, begin: usize) {
        let (shape, width) = (self.shape, padded(self.shape.head_dim));
        let qkv = &self.qkv[shape.span(sequence, shape.qkv_width())];
        let query = &qkv[begin * shape.qkv_width() + head * shape.head_dim..];
        gather(query, shape.qkv_width(), shape.head_dim, shape.scale(), self.queries);
        self.sums.fill(E::Sum::zero());
        let mut softmax = Softmax::new();
        for (key, mask) in Mask::of_tiles(shape, begin) {
            let tile = key * width..(key + TILE) * width;
            scores(simd, self.queries, &self.keys[tile.clone()], width, mask, self.scores);
            softmax.update(simd, self.scores, self.sums, width, mask);
            combine(simd, self.scores, &self.values[tile], width, mask, self.sums);
        }
        let token = sequence * shape.sequence + begin;
        let rows = self.sums.chunks_exact(width).zip(softmax.maxima.iter().zip(&softmax.totals));
        for (token, (sums, (maximum, total))) in (token..).zip(rows.take(shape.sequence - begin)) {
            self.lse[token * shape.heads + head] = *maximum + total.ln();
            let out = &mut self.out[token * shape.out_width() + head * shape.head_dim..][..shape.head_dim];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = E::narrow(*sum / *total);
            }
        }
    }
}

/// The softmax of a tile of queries over the keys so far.
struct Softmax<S> {
    maxima: [S; TILE],
    /// The sums of the exponentials, less the maxima.
    totals: [S; TILE],
}

impl<S: Real> Softmax<S> {
    fn new() -> Softmax<S> {
        Softmax { maxima: [S::neg_infinity(); TILE], totals: [S::zero(); TILE] }
    }

    /// Turns the scores of a tile of keys into exponentials, and rescales what was summed up before.
    #[inline(always)]
    fn update<V: Simd>(&mut self, simd: V, scores: &mut [S], sums: &mut [S], width: usize, mask: Mask) {
        let mut corrections = self.maxima;
        for ((row, scores), maximum) in scores.chunks_exact_mut(TILE).enumerate().zip(&mut self.maxima) {
            let valid = mask.valid(row);
            let scores = &mut scores[..valid.next_multiple_of(LONGEST_VECTOR)];
            scores[valid..].fill(S::neg_infinity());
            *maximum = maximum.max(maximum_of(simd, scores));
        }
        for (correction, maximum) in corrections.iter_mut().zip(&self.maxima) {
            *correction = (*correction - *maximum).exponential();
        }
        let rows = scores.chunks_exact_mut(TILE).zip(sums.chunks_exact_mut(width)).enumerate();
        let state = self.maxima.iter().zip(&mut self.totals).zip(&corrections);
        for ((row, (scores, sums)), ((maximum, total), correction)) in rows.zip(state) {
            let scores = &mut scores[..mask.valid(row).next_multiple_of(LONGEST_VECTOR)];
            for score in scores.iter_mut() {
                *score = (*score - *maximum).exponential();
            }
            *total = *total * *correction + sum_of(simd, scores);
            for sum in sums {
                *sum *= *correction;
            }
        }
    }
}

/// The largest of numbers that fill whole vectors.
#[inline(always)]
fn maximum_of<V: Simd, S: Real>(simd: V, values: &[S]) -> S {
    let mut largest = S::splat(simd, S::neg_infinity());
    for vector in S::vectors::<V>(values) {
        largest = S::larger(simd, largest, *vector);
    }
    S::largest(simd, largest)
}

/// The sum of numbers that fill whole vectors.
#[inline(always)]
fn sum_of<V: Simd, S: Real>(simd: V, values: &[S]) -> S {
    let mut sum = S::splat(simd, S::zero());
    for vector in S::vectors::<V>(values) {
        sum = S::sum(simd, sum, *vector);
    }
    S::total(simd, sum)
}
