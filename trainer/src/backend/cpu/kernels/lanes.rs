//! Loops as the processor's vectors like them.

use num_traits::{Float, Zero};

use super::{Element, Real};

/// How many sums a reduction keeps side by side. Their order is fixed, so a result never depends on the processor's
/// vector width; without them a sum is one long chain of additions.
const LANES: usize = 16;
/// How many terms are computed before they are summed: the compiler vectorises either, but not both in one loop.
pub(crate) const BLOCK: usize = 64;

/// Runs a closure compiled for the widest vectors that this processor has.
///
/// The closure has to be `#[inline(always)]`, as everything that it calls and that should profit.
#[inline(always)]
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// The sum of what `term` makes of the values.
#[inline(always)]
pub(crate) fn sum<E: Element, S: Real>(values: &[E], term: impl Fn(E) -> S) -> S {
    let mut lanes = [S::zero(); LANES];
    for values in values.chunks(BLOCK) {
        let mut terms = [S::zero(); BLOCK];
        for (to, value) in terms.iter_mut().zip(values) {
            *to = term(*value);
        }
        accumulate(&mut lanes, &terms[..values.len()]);
    }
    fold(lanes, add)
}

/// The sum of the products of values that belong together.
#[inline(always)]
pub(crate) fn dot<E: Element>(a: &[E], b: &[E]) -> E::Sum {
    assert_eq!(a.len(), b.len());
    let mut lanes = [E::Sum::zero(); LANES];
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        let mut terms = [E::Sum::zero(); BLOCK];
        for (term, (a, b)) in terms.iter_mut().zip(a.iter().zip(b)) {
            *term = a.widen() * b.widen();
        }
        accumulate(&mut lanes, &terms[..a.len()]);
    }
    fold(lanes, add)
}

/// The sum of the products of three values that belong together.
#[inline(always)]
pub(crate) fn dot_of_three<E: Element>(a: &[E], b: &[E], c: &[E]) -> E::Sum {
    assert!(a.len() == b.len() && b.len() == c.len());
    let mut lanes = [E::Sum::zero(); LANES];
    for ((a, b), c) in a.chunks(BLOCK).zip(b.chunks(BLOCK)).zip(c.chunks(BLOCK)) {
        let mut terms = [E::Sum::zero(); BLOCK];
        for (((term, a), b), c) in terms.iter_mut().zip(a).zip(b).zip(c) {
            *term = a.widen() * b.widen() * c.widen();
        }
        accumulate(&mut lanes, &terms[..a.len()]);
    }
    fold(lanes, add)
}

/// The largest value; negative infinity if there is none.
#[inline(always)]
pub(crate) fn maximum<E: Element>(values: &[E]) -> E::Sum {
    let mut lanes = [E::Sum::neg_infinity(); LANES];
    for values in values.chunks(BLOCK) {
        let mut terms = [E::Sum::neg_infinity(); BLOCK];
        for (term, value) in terms.iter_mut().zip(values) {
            *term = value.widen();
        }
        for chunk in terms.as_chunks::<LANES>().0 {
            for (lane, term) in lanes.iter_mut().zip(chunk) {
                *lane = larger(*lane, *term);
            }
        }
    }
    fold(lanes, larger)
}

/// Adds terms to the lanes, in turn.
#[inline(always)]
fn accumulate<S: Real>(lanes: &mut [S; LANES], terms: &[S]) {
    let (chunks, rest) = terms.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, term) in lanes.iter_mut().zip(chunk) {
            *lane += *term;
        }
    }
    for (lane, term) in lanes.iter_mut().zip(rest) {
        *lane += *term;
    }
}

#[inline(always)]
fn add<S: Real>(left: S, right: S) -> S {
    left + right
}

/// The larger of two numbers, as one instruction has it: no care is taken of NaN.
#[inline(always)]
fn larger<S: Real>(left: S, right: S) -> S {
    if right > left { right } else { left }
}

/// Halves the lanes until one is left.
#[inline(always)]
fn fold<S: Real>(mut lanes: [S; LANES], combine: impl Fn(S, S) -> S) -> S {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
