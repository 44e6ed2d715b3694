//! Operations on every element by itself, and the sum over all of them.

use super::{Element, Real, lanes, vectorised};

/// target += other, in whatever either is stored as.
pub(crate) fn add<E: Element, O: Element<Sum = E::Sum>>(target: &mut [E], other: &[O]) {
    vectorised(
        #[inline(always)]
        || add_inline(target, other),
    );
}

/// [`add`], for kernels that are vectorised themselves.
#[inline(always)]
pub(crate) fn add_inline<E: Element, O: Element<Sum = E::Sum>>(target: &mut [E], other: &[O]) {
    assert_eq!(target.len(), other.len());
    for (target, other) in target.iter_mut().zip(other) {
        *target = E::narrow(target.widen() + other.widen());
    }
}

/// total += the squares of all values.
pub(crate) fn add_squares<E: Element>(values: &[E], total: &mut [E::Sum]) {
    assert_eq!(total.len(), 1);
    vectorised(
        #[inline(always)]
        || total[0] += lanes::dot(values, values),
    );
}

/// Copies numbers into another form of storage.
pub(crate) fn convert<A: Element, B: Element>(from: &[A], to: &mut [B]) {
    assert_eq!(from.len(), to.len());
    vectorised(
        #[inline(always)]
        || {
            for (to, from) in to.iter_mut().zip(from) {
                // Exact and gone after compilation where the sums are the same, since f64 holds every f32.
                *to = B::narrow(B::Sum::of(from.widen().double()));
            }
        },
    );
}
