//! Small matrix products on tiles that stay in the first-level cache.
//!
//! A general matrix product spends more time on getting ready than such tiles take, and knows nothing of the diagonal:
//! in the tile that has it, what lies above is left out here, to the nearest block.

use std::array;

use pulp::Simd;

use super::super::{Element, Heads, Real};

/// Queries of a tile, and keys of a tile.
pub(super) const TILE: usize = 64;
/// Rows of a result that are summed in registers at a time, one vector of each: enough for the processor to always have
/// a sum that is not waiting for the one before it.
const ROWS: usize = 8;
/// No processor's vectors are longer, and all of them divide it.
pub(super) const LONGEST_VECTOR: usize = 16;

/// The width of heads in tiles: padded with zeros, so that no product has a rest.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LONGEST_VECTOR)
}

/// Which scores of a tile mean something.
#[derive(Clone, Copy)]
pub(super) enum Mask {
    /// Those up to a query's own position, which the tile has.
    Diagonal,
    /// Those of so many keys.
    Keys(usize),
}

impl Mask {
    /// The tiles of keys that a tile of queries sees, by where they begin.
    pub(super) fn of_tiles(shape: &Heads, queries: usize) -> impl Iterator<Item = (usize, Mask)> + use<> {
        let Heads { sequence, causal, .. } = *shape;
        let end = if causal { queries + 1 } else { sequence };
        (0..end).step_by(TILE).map(move |begin| match causal && begin == queries {
            true => (begin, Mask::Diagonal),
            false => (begin, Mask::Keys(TILE.min(sequence - begin))),
        })
    }

    /// How many scores of a row mean something, counted from its beginning.
    #[inline(always)]
    pub(super) fn valid(self, row: usize) -> usize {
        match self {
            Mask::Diagonal => row + 1,
            Mask::Keys(keys) => keys,
        }
    }

    /// How many may in a block of rows. What is beyond those that do is zero.
    #[inline(always)]
    fn of_block(self, block: usize) -> usize {
        self.valid((block + 1) * ROWS - 1).next_multiple_of(ROWS)
    }
}

/// c = a · b, where `a` is a tile of heads by rows, `b` one by columns, and `c` is queries × keys.
#[inline(always)]
pub(super) fn scores<V: Simd, S: Real>(simd: V, a: &[S], b: &[S], width: usize, mask: Mask, c: &mut [S]) {
    let b = S::vectors::<V>(b);
    let stride = b.len() / width;
    for (block, (a, c)) in a.chunks_exact(ROWS * width).zip(c.chunks_exact_mut(ROWS * TILE)).enumerate() {
        let end = mask.of_block(block);
        let (lines, c) = (lines_of(a, width, width), S::vectors_mut::<V>(c));
        for column in 0..(end * stride).div_ceil(TILE) {
            let sums = sum_products(simd, [S::splat(simd, S::zero()); ROWS], lines, b, stride, column);
            store::<V, S>(sums, c, stride, column);
        }
    }
}

/// c += a · b, where `a` is queries × keys, and `b` is a tile of keys' heads by rows.
#[inline(always)]
pub(super) fn combine<V: Simd, S: Real>(simd: V, a: &[S], b: &[S], width: usize, mask: Mask, c: &mut [S]) {
    let b = S::vectors::<V>(b);
    let stride = b.len() / TILE;
    for (block, (a, c)) in a.chunks_exact(ROWS * TILE).zip(c.chunks_exact_mut(ROWS * width)).enumerate() {
        let end = mask.of_block(block);
        let (lines, c) = (lines_of(a, TILE, end), S::vectors_mut::<V>(c));
        for column in 0..stride {
            let sums = sum_products(simd, load::<V, S>(c, stride, column), lines, b, stride, column);
            store::<V, S>(sums, c, stride, column);
        }
    }
}

/// c += aᵀ · b, where `a` is queries × keys, and `b` is a tile of queries' heads by rows.
#[inline(always)]
pub(super) fn combine_transposed<V: Simd, S: Real>(simd: V, a: &[S], b: &[S], width: usize, mask: Mask, c: &mut [S]) {
    let b = S::vectors::<V>(b);
    let stride = b.len() / TILE;
    for (block, c) in c.chunks_exact_mut(ROWS * width).enumerate() {
        let key = block * ROWS;
        let begin = if matches!(mask, Mask::Diagonal) { key } else { 0 };
        let c = S::vectors_mut::<V>(c);
        for column in 0..stride {
            let mut sums = load::<V, S>(c, stride, column);
            for (factors, line) in a.chunks_exact(TILE).zip(b.chunks_exact(stride)).skip(begin) {
                let factors = &factors[key..key + ROWS];
                for row in 0..ROWS {
                    sums[row] = S::multiply_add(simd, S::splat(simd, factors[row]), line[column], sums[row]);
                }
            }
            store::<V, S>(sums, c, stride, column);
        }
    }
}

/// The first `count` elements of every line, in pieces: so the compiler need not check every single index.
#[inline(always)]
fn lines_of<S: Real>(a: &[S], stride: usize, count: usize) -> [&[[S; ROWS]]; ROWS] {
    array::from_fn(
        #[inline(always)]
        |row| a[row * stride..][..count].as_chunks().0,
    )
}

/// The sums, and what the lines of factors add to them with a column of `b`.
#[inline(always)]
fn sum_products<V: Simd, S: Real>(
    simd: V,
    mut sums: [S::Vector<V>; ROWS],
    lines: [&[[S; ROWS]]; ROWS],
    b: &[S::Vector<V>],
    stride: usize,
    column: usize,
) -> [S::Vector<V>; ROWS] {
    for (piece, b) in b.chunks_exact(ROWS * stride).take(lines[0].len()).enumerate() {
        let factors: [&[S; ROWS]; ROWS] = array::from_fn(
            #[inline(always)]
            |row| &lines[row][piece],
        );
        for index in 0..ROWS {
            let vector = b[index * stride + column];
            for row in 0..ROWS {
                sums[row] = S::multiply_add(simd, S::splat(simd, factors[row][index]), vector, sums[row]);
            }
        }
    }
    sums
}

#[inline(always)]
fn load<V: Simd, S: Real>(c: &[S::Vector<V>], stride: usize, column: usize) -> [S::Vector<V>; ROWS] {
    array::from_fn(
        #[inline(always)]
        |row| c[row * stride + column],
    )
}

#[inline(always)]
fn store<V: Simd, S: Real>(sums: [S::Vector<V>; ROWS], c: &mut [S::Vector<V>], stride: usize, column: usize) {
    for (row, sum) in sums.into_iter().enumerate() {
        c[row * stride + column] = sum;
    }
}

/// Copies one head of every token, times a factor; what is left of the tiles becomes zeros.
#[inline(always)]
pub(super) fn gather<E: Element>(from: &[E], stride: usize, head_dim: usize, factor: E::Sum, tiles: &mut [E::Sum]) {
    let mut lines = from.chunks(stride);
    for line in tiles.chunks_exact_mut(padded(head_dim)) {
        let head = lines.next().map_or(&[][..], |line| &line[..head_dim]);
        for (to, from) in line.iter_mut().zip(head) {
            *to = from.widen() * factor;
        }
        line[head.len()..].fill(E::Sum::default());
    }
}

/// Copies tiles, times a factor, to one head of every token.
#[inline(always)]
pub(super) fn scatter<E: Element>(tiles: &[E::Sum], factor: E::Sum, to: &mut [E], stride: usize, head_dim: usize) {
    for (line, head) in tiles.chunks_exact(padded(head_dim)).zip(to.chunks_mut(stride)) {
        for (to, from) in head[..head_dim].iter_mut().zip(line) {
            *to = E::narrow(*from * factor);
        }
    }
}

/// Copies tiles of heads by rows into tiles of heads by columns.
#[inline(always)]
pub(super) fn transpose<S: Real>(from: &[S], width: usize, to: &mut [S]) {
    for (from, to) in from.chunks_exact(TILE * width).zip(to.chunks_exact_mut(TILE * width)) {
        for (index, line) in to.chunks_exact_mut(TILE).enumerate() {
            for (to, from) in line.iter_mut().zip(from.chunks_exact(width)) {
                *to = from[index];
            }
        }
    }
}
