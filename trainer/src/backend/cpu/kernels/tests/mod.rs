//! The kernels against the definitions of what they compute.

mod adamw;
mod attention;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
mod matmul;
mod norm;
mod rope;
mod swiglu;

use half::bf16;

use super::{Element, convert};

/// Relative tolerances of a result that is rounded once, after sums of a few hundred terms in f32.
const BRAIN: f64 = 8e-3;
const SINGLE: f64 = 2e-6;
/// Of gradients against central differences.
const DIFFERENCES: f64 = 1e-6;
const STEP: f64 = 1e-5;

/// Numbers between -1 and 1 that all precisions can store, so that they all have the same inputs.
fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| bf16::from_f64(random.f64() * 2.0 - 1.0).to_f64()).collect()
}

/// The numbers in another precision.
fn stored<A: Element, B: Element>(numbers: &[A]) -> Vec<B> {
    let mut stored = vec![B::default(); numbers.len()];
    convert(numbers, &mut stored);
    stored
}

/// Compares numbers, relative to the larger of 1 and what is expected.
fn assert_close<E: Element>(actual: &[E], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (index, (actual, expected)) in stored::<_, f64>(actual).iter().zip(expected).enumerate() {
        let difference = (actual - expected).abs();
        assert!(difference <= tolerance * expected.abs().max(1.0), "{index}: {actual} rather than {expected}");
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares a gradient with how an objective really changes.
fn assert_gradient(gradient: &[f64], at: &[f64], objective: impl Fn(&[f64]) -> f64) {
    let mut point = at.to_vec();
    let differences: Vec<f64> = (0..at.len())
        .map(|index| {
            point[index] = at[index] + STEP;
            let above = objective(&point);
            point[index] = at[index] - STEP;
            let below = objective(&point);
            point[index] = at[index];
            (above - below) / (2.0 * STEP)
        })
        .collect();
    assert_close(gradient, &differences, DIFFERENCES);
}
