//! Root-mean-square normalization of rows.

use num_traits::{Float, Zero};

use super::{Element, Real, elementwise, lanes, vectorised};

/// y = x / √(mean of x² + epsilon) · weight, for rows as wide as the weight.
pub(crate) fn rms_norm<E: Element>(x: &[E], weight: &[E], y: &mut [E], epsilon: f64) {
    let width = weight.len();
    assert!(x.len() == y.len() && x.len().is_multiple_of(width), "rows of {width}");
    vectorised(
        #[inline(always)]
        || {
            for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                let scale = reciprocal_root(x, epsilon);
                for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
                    *y = E::narrow(x.widen() * scale * weight.widen());
                }
            }
        },
    );
}

/// The gradients of [`rms_norm`], added to `d_x` and `d_weight`; the roots are computed from `x` again.
pub(crate) fn rms_norm_backward<E: Element, G: Element<Sum = E::Sum>>(
    x: &[E],
    weight: &[E],
    d_y: &[E],
    d_x: &mut [E],
    d_weight: &mut [G],
    epsilon: f64,
) {
    let width = weight.len();
    assert!(x.len() == d_y.len() && x.len() == d_x.len() && x.len().is_multiple_of(width), "rows of {width}");
    assert_eq!(d_weight.len(), width);
    // Summed over all rows before it is rounded to what the gradient is stored as.
    let mut weight_sums = vec![E::Sum::zero(); width];
    vectorised(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width));
            for ((x, d_y), d_x) in rows.zip(d_x.chunks_exact_mut(width)) {
                row_backward(x, weight, d_y, d_x, &mut weight_sums, epsilon);
            }
        },
    );
    elementwise::add(d_weight, &weight_sums);
}

/// In loops with one result each, because the compiler does not vectorise one with two.
#[inline(always)]
fn row_backward<E: Element>(x: &[E], weight: &[E], d_y: &[E], d_x: &mut [E], weight_sums: &mut [E::Sum], epsilon: f64) {
    let scale = reciprocal_root(x, epsilon);
    let count = E::Sum::of(x.len() as f64);
    let along_x = lanes::dot_of_three(x, d_y, weight) * scale * scale * scale / count;
    for ((weight_sum, x), d_y) in weight_sums.iter_mut().zip(x).zip(d_y) {
        *weight_sum += d_y.widen() * x.widen() * scale;
    }
    for (((d_x, x), d_y), weight) in d_x.iter_mut().zip(x).zip(d_y).zip(weight) {
        *d_x = E::narrow(d_x.widen() + d_y.widen() * weight.widen() * scale - x.widen() * along_x);
    }
}

/// 1 / √(mean of x² + epsilon).
#[inline(always)]
fn reciprocal_root<E: Element>(x: &[E], epsilon: f64) -> E::Sum {
    (lanes::dot(x, x) / E::Sum::of(x.len() as f64) + E::Sum::of(epsilon)).sqrt().recip()
}
