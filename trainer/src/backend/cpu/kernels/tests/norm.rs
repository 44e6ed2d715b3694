//! Normalisation.

use half::bf16;

use super::super::{Element, rms_norm, rms_norm_backward};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, dot, random, stored};

const EPSILON: f64 = 1e-5;

fn forward<E: Element>(x: &[f64], weight: &[f64]) -> Vec<E> {
    let mut y = vec![E::default(); x.len()];
    rms_norm(&stored::<_, E>(x), &stored(weight), &mut y, EPSILON);
    y
}

fn backward<E: Element, G: Element<Sum = E::Sum>>(x: &[f64], weight: &[f64], d_y: &[f64]) -> (Vec<E>, Vec<G>) {
    let (mut d_x, mut d_weight) = (vec![E::default(); x.len()], vec![G::default(); weight.len()]);
    rms_norm_backward(&stored::<_, E>(x), &stored(weight), &stored(d_y), &mut d_x, &mut d_weight, EPSILON);
    (d_x, d_weight)
}

#[test]
fn rows_are_divided_by_their_root_mean_square() {
    let y = forward::<f64>(&[3.0, 4.0, 0.5, 0.0], &[1.0, 2.0]);
    let (first, second) = ((12.5 + EPSILON).sqrt(), (0.125 + EPSILON).sqrt());
    assert_close(&y, &[3.0 / first, 8.0 / first, 0.5 / second, 0.0], 1e-12);
}

#[test]
fn gradients_are_those_of_differences() {
    for width in [1, 5, 16, 37] {
        let (x, weight, d_y) = (random(1, 3 * width), random(2, width), random(3, 3 * width));
        let (d_x, d_weight) = backward::<f64, f64>(&x, &weight, &d_y);
        assert_gradient(&d_x, &x, |x| dot(&forward(x, &weight), &d_y));
        assert_gradient(&d_weight, &weight, |weight| dot(&forward(&x, weight), &d_y));
    }
}

#[test]
fn gradients_are_added_to_what_is_there() {
    let (x, weight, d_y) = (random(1, 12), random(2, 6), random(3, 12));
    let (once_x, once_weight) = backward::<f64, f64>(&x, &weight, &d_y);
    let (mut d_x, mut d_weight) = (vec![1.0; 12], vec![2.0; 6]);
    rms_norm_backward(&x, &weight, &d_y, &mut d_x, &mut d_weight, EPSILON);
    assert_close(&d_x, &once_x.iter().map(|gradient| gradient + 1.0).collect::<Vec<_>>(), 1e-12);
    assert_close(&d_weight, &once_weight.iter().map(|gradient| gradient + 2.0).collect::<Vec<_>>(), 1e-12);
}

#[test]
fn lower_precisions_agree() {
    let (x, weight, d_y) = (random(1, 4 * 100), random(2, 100), random(3, 4 * 100));
    let y = forward::<f64>(&x, &weight);
    assert_close(&forward::<f32>(&x, &weight), &y, SINGLE);
    assert_close(&forward::<bf16>(&x, &weight), &y, BRAIN);
    let (d_x, d_weight) = backward::<f64, f64>(&x, &weight, &d_y);
    let (single_x, single_weight) = backward::<f32, f32>(&x, &weight, &d_y);
    assert_close(&single_x, &d_x, SINGLE);
    assert_close(&single_weight, &d_weight, SINGLE);
    let (brain_x, brain_weight) = backward::<bf16, f32>(&x, &weight, &d_y);
    assert_close(&brain_x, &d_x, BRAIN);
    assert_close(&brain_weight, &d_weight, SINGLE);
}
