//! The gated activation.

use half::bf16;

use super::super::{Element, swiglu, swiglu_backward};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, dot, random, stored};

fn forward<E: Element>(gate_up: &[f64], width: usize) -> Vec<E> {
    let mut product = vec![E::default(); gate_up.len() / 2];
    swiglu(&stored::<_, E>(gate_up), &mut product, width);
    product
}

fn backward<E: Element>(gate_up: &[f64], d_product: &[f64], width: usize) -> Vec<E> {
    let mut d_gate_up = vec![E::default(); gate_up.len()];
    swiglu_backward(&stored::<_, E>(gate_up), &stored(d_product), &mut d_gate_up, width);
    d_gate_up
}

#[test]
fn gates_are_those_of_the_definition() {
    let silu = |gate: f64| gate / (1.0 + (-gate).exp());
    let product = forward::<f64>(&[1.0, -2.0, 3.0, 4.0, 0.0, 5.0, 6.0, 0.5], 2);
    assert_close(&product, &[3.0 * silu(1.0), 4.0 * silu(-2.0), 0.0, 0.5 * silu(5.0)], 1e-12);
}

#[test]
fn gates_far_from_zero_are_open_or_shut() {
    assert_eq!(forward::<f32>(&[500.0, -500.0, 3.0, 3.0], 2), [1500.0, 0.0]);
    assert_eq!(backward::<f32>(&[500.0, -500.0, 3.0, 3.0], &[1.0, 1.0], 2), [3.0, 0.0, 500.0, 0.0]);
}

#[test]
fn the_gradient_is_that_of_differences() {
    for width in [1, 7, 33] {
        let (gate_up, d_product) = (random(1, 3 * 2 * width), random(2, 3 * width));
        let gradient = backward::<f64>(&gate_up, &d_product, width);
        assert_gradient(&gradient, &gate_up, |gate_up| dot(&forward(gate_up, width), &d_product));
    }
}

#[test]
fn lower_precisions_agree() {
    let (gate_up, d_product) = (random(1, 200), random(2, 100));
    let expected = forward::<f64>(&gate_up, 50);
    assert_close(&forward::<f32>(&gate_up, 50), &expected, SINGLE);
    assert_close(&forward::<bf16>(&gate_up, 50), &expected, BRAIN);
    let expected = backward::<f64>(&gate_up, &d_product, 50);
    assert_close(&backward::<f32>(&gate_up, &d_product, 50), &expected, SINGLE);
    assert_close(&backward::<bf16>(&gate_up, &d_product, 50), &expected, BRAIN);
}
