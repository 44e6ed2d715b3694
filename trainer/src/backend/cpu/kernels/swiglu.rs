//! The gated activation of the feed-forward layers.

use num_traits::{One, Zero};

use super::{Element, Real, vectorised};

/// Elements whose gates are kept between the loops of the gradient.
const BLOCK: usize = 64;

/// product = silu(gate) · up, where a row of `gate_up` is `width` elements of gate, then as many of up.
pub(crate) fn swiglu<E: Element>(gate_up: &[E], product: &mut [E], width: usize) {
    assert!(gate_up.len() == 2 * product.len() && product.len().is_multiple_of(width), "rows of {width}");
    vectorised(
        #[inline(always)]
        || {
            for (gate_up, product) in gate_up.chunks_exact(2 * width).zip(product.chunks_exact_mut(width)) {
                let (gate, up) = gate_up.split_at(width);
                for (product, (gate, up)) in product.iter_mut().zip(gate.iter().zip(up)) {
                    let gate = gate.widen();
                    *product = E::narrow(gate * sigmoid(gate) * up.widen());
                }
            }
        },
    );
}

/// The gradient of [`swiglu`].
pub(crate) fn swiglu_backward<E: Element>(gate_up: &[E], d_product: &[E], d_gate_up: &mut [E], width: usize) {
    assert!(gate_up.len() == 2 * d_product.len() && d_product.len().is_multiple_of(width), "rows of {width}");
    assert_eq!(gate_up.len(), d_gate_up.len());
    vectorised(
        #[inline(always)]
        || {
            let rows = gate_up.chunks_exact(2 * width).zip(d_product.chunks_exact(width));
            for ((gate_up, d_product), d_gate_up) in rows.zip(d_gate_up.chunks_exact_mut(2 * width)) {
                let ((gate, up), (d_gate, d_up)) = (gate_up.split_at(width), d_gate_up.split_at_mut(width));
                let inputs = gate.chunks(BLOCK).zip(up.chunks(BLOCK)).zip(d_product.chunks(BLOCK));
                let outputs = d_gate.chunks_mut(BLOCK).zip(d_up.chunks_mut(BLOCK));
                for (((gate, up), d_product), (d_gate, d_up)) in inputs.zip(outputs) {
                    block_backward(gate, up, d_product, d_gate, d_up);
                }
            }
        },
    );
}

/// In loops with one result each, because the compiler does not vectorise one with two.
#[inline(always)]
fn block_backward<E: Element>(gate: &[E], up: &[E], d_product: &[E], d_gate: &mut [E], d_up: &mut [E]) {
    let mut sigmoids = [E::Sum::zero(); BLOCK];
    for (sigmoid, gate) in sigmoids.iter_mut().zip(gate) {
        *sigmoid = self::sigmoid(gate.widen());
    }
    for (((d_up, gate), d_product), sigmoid) in d_up.iter_mut().zip(gate).zip(d_product).zip(&sigmoids) {
        *d_up = E::narrow(d_product.widen() * gate.widen() * *sigmoid);
    }
    for ((((d_gate, gate), up), d_product), sigmoid) in
        d_gate.iter_mut().zip(gate).zip(up).zip(d_product).zip(&sigmoids)
    {
        let slope = *sigmoid * (E::Sum::one() + gate.widen() * (E::Sum::one() - *sigmoid));
        *d_gate = E::narrow(d_product.widen() * up.widen() * slope);
    }
}

#[inline(always)]
fn sigmoid<S: Real>(x: S) -> S {
    (S::one() + (-x).exponential()).recip()
}
