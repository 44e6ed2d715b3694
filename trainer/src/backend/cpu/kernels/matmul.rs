//! Matrix products.

use std::any::TypeId;

use gemm::Parallelism;

use super::{Element, Product, Real, Scratch, elementwise::convert, vectorised};

/// How much of each dimension is multiplied at a time where numbers have to be converted, so that the converted blocks
/// stay in the second-level cache.
const MOST_ROWS: usize = 256;
const MOST_COLUMNS: usize = 512;
const MOST_INNER: usize = 512;

/// Multiplies two matrices, with sums in `E::Sum` whatever the result is stored as.
pub(crate) fn matmul<E: Element, O: Element<Sum = E::Sum>>(
    product: &Product,
    a: &[E],
    b: &[E],
    out: &mut [O],
    scratch: &mut Scratch,
) {
    let Product { rows, columns, inner, transpose_a, transpose_b, accumulate } = *product;
    assert_eq!(a.len(), rows * inner, "a of {product:?}");
    assert_eq!(b.len(), inner * columns, "b of {product:?}");
    assert_eq!(out.len(), rows * columns, "out of {product:?}");
    let a = if transpose_a { View::transposed(a, rows) } else { View::stored(a, inner) };
    let b = if transpose_b { View::transposed(b, inner) } else { View::stored(b, columns) };
    let out_is_wide = TypeId::of::<O>() == TypeId::of::<E::Sum>();
    if out_is_wide && TypeId::of::<E>() == TypeId::of::<E::Sum>() {
        return multiply(
            [rows, columns, inner],
            &a.wide(),
            &b.wide(),
            bytemuck::cast_slice_mut(out),
            columns,
            accumulate,
        );
    }
    let blocks = [rows.min(MOST_ROWS), columns.min(MOST_COLUMNS), inner.min(MOST_INNER)];
    let sums = if out_is_wide { 0 } else { blocks[0] * blocks[1] };
    let [a_block, b_block, sums] = scratch.take([blocks[0] * blocks[2], blocks[2] * blocks[1], sums]);
    for column in (0..columns).step_by(MOST_COLUMNS) {
        let width = blocks[1].min(columns - column);
        for row in (0..rows).step_by(MOST_ROWS) {
            let height = blocks[0].min(rows - row);
            let mut accumulate = accumulate;
            if !out_is_wide && accumulate {
                for (sums, row) in sums.chunks_exact_mut(width).zip(row..row + height) {
                    convert(&out[row * columns + column..][..width], sums);
                }
            }
            // At least once, because a product without inner terms is zero.
            for begin in (0..inner.max(1)).step_by(MOST_INNER) {
                let depth = blocks[2].min(inner - begin);
                let a = a.block(row, height, begin, depth, a_block);
                let b = b.block(begin, depth, column, width, b_block);
                let (target, stride) = if out_is_wide {
                    (&mut bytemuck::cast_slice_mut(out)[row * columns + column..], columns)
                } else {
                    (&mut *sums, width)
                };
                multiply([height, width, depth], &a, &b, target, stride, accumulate);
                accumulate = true;
            }
            if !out_is_wide {
                for (sums, row) in sums.chunks_exact(width).zip(row..row + height) {
                    convert(sums, &mut out[row * columns + column..][..width]);
                }
            }
        }
    }
}

/// A matrix in a slice.
struct View<'a, E> {
    values: &'a [E],
    /// How far apart elements of a column are, and those of a row. One of them is 1.
    row_stride: usize,
    column_stride: usize,
}

impl<'a, E: Element> View<'a, E> {
    fn stored(values: &'a [E], columns: usize) -> View<'a, E> {
        View { values, row_stride: columns, column_stride: 1 }
    }

    fn transposed(values: &'a [E], rows: usize) -> View<'a, E> {
        View { values, row_stride: 1, column_stride: rows }
    }

    /// The same matrix, whose elements are known to be of the type of sums already.
    fn wide(&self) -> View<'a, E::Sum> {
        View {
            values: bytemuck::cast_slice(self.values),
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }

    /// A part of the matrix, converted into `buffer` as it is stored unless its elements are those of sums already.
    fn block<'b>(
        &self,
        row: usize,
        rows: usize,
        column: usize,
        columns: usize,
        buffer: &'b mut [E::Sum],
    ) -> View<'b, E::Sum>
    where
        'a: 'b,
    {
        let first = row * self.row_stride + column * self.column_stride;
        if TypeId::of::<E>() == TypeId::of::<E::Sum>() {
            return View { values: &bytemuck::cast_slice(self.values)[first.min(self.values.len())..], ..self.wide() };
        }
        let transposed = self.column_stride != 1;
        let (lines, length, stride) =
            if transposed { (columns, rows, self.column_stride) } else { (rows, columns, self.row_stride) };
        vectorised(
            #[inline(always)]
            || {
                for line in 0..lines {
                    let stored = &self.values[first + line * stride..][..length];
                    for (wide, stored) in buffer[line * length..][..length].iter_mut().zip(stored) {
                        *wide = stored.widen();
                    }
                }
            },
        );
        if transposed { View::transposed(buffer, rows) } else { View::stored(buffer, columns) }
    }

    /// Whether it holds all elements of so many rows and columns.
    fn covers(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.row_stride + (columns - 1) * self.column_stride < self.values.len()
    }
}

/// out (+)= a · b for matrices that need no conversion; the rows of `out` begin every `stride` elements.
fn multiply<S: Real>(
    [rows, columns, inner]: [usize; 3],
    a: &View<'_, S>,
    b: &View<'_, S>,
    out: &mut [S],
    stride: usize,
    accumulate: bool,
) {
    assert!(a.covers(rows, inner) && b.covers(inner, columns));
    assert!(columns <= stride && View::stored(out, stride).covers(rows, columns));
    let alpha = if accumulate { S::one() } else { S::zero() };
    // SAFETY: gemm reads and writes the elements of three matrices at their strides; the assertions above say that the
    // slices hold them all, and the slice that is written to is borrowed for writing. Strides of slices fit an isize.
    #[allow(unsafe_code)]
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            out.as_mut_ptr(),
            1,
            stride as isize,
            accumulate,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            alpha,
            S::one(),
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
