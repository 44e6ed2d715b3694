//! The loss, whole and in parts.

use half::bf16;

use crate::backend::LossWeights;

use super::super::{Element, Real, loss, loss_backward, row_maxima, row_sums};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, random, stored};

const ROWS: usize = 5;
const COLUMNS: usize = 24;
const TARGETS: [u32; ROWS] = [0, 23, 7, 12, 11];
const WEIGHTS: LossWeights = LossWeights { scale: 0.2, z: 0.03 };

/// The loss and its gradient, computed by so many ranks.
fn run<E: Element>(logits: &[f64], ranks: usize) -> (f64, Vec<E>) {
    let columns = COLUMNS / ranks;
    let part = |rank: usize| -> Vec<E> {
        let rows = logits.chunks(COLUMNS).map(|row| &row[rank * columns..(rank + 1) * columns]);
        stored(&rows.collect::<Vec<_>>().concat())
    };
    let first = |rank: usize| (rank * columns) as u32;
    let mut maxima = vec![E::Sum::of(f64::NEG_INFINITY); ROWS];
    for rank in 0..ranks {
        let mut own = vec![E::Sum::default(); ROWS];
        row_maxima(&part(rank), columns, &mut own);
        for (maximum, own) in maxima.iter_mut().zip(own) {
            *maximum = if own > *maximum { own } else { *maximum };
        }
    }
    let mut sums = vec![E::Sum::default(); 2 * ROWS];
    for rank in 0..ranks {
        let mut own = vec![E::Sum::default(); 2 * ROWS];
        row_sums(&part(rank), columns, &maxima, &TARGETS, first(rank), &mut own);
        for (sum, own) in sums.iter_mut().zip(own) {
            *sum += own;
        }
    }
    let mut total = [E::Sum::of(1.0)];
    loss(&maxima, &sums, WEIGHTS, &mut total);
    let mut d_logits = vec![E::default(); logits.len()];
    for rank in 0..ranks {
        let mut own = vec![E::default(); ROWS * columns];
        loss_backward(&part(rank), columns, &maxima, &sums, &TARGETS, first(rank), WEIGHTS, &mut own);
        for (row, own) in d_logits.chunks_mut(COLUMNS).zip(own.chunks(columns)) {
            row[rank * columns..][..columns].copy_from_slice(own);
        }
    }
    (total[0].double() - 1.0, d_logits)
}

fn logits() -> Vec<f64> {
    random(1, ROWS * COLUMNS).iter().map(|logit| logit * 8.0).collect()
}

#[test]
fn the_loss_is_that_of_the_definition() {
    let losses = logits()
        .chunks(COLUMNS)
        .zip(TARGETS)
        .map(|(row, target)| {
            let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
            -(row[target as usize].exp() / sum).ln() + WEIGHTS.z * sum.ln().powi(2)
        })
        .sum::<f64>();
    assert_close(&[run::<f64>(&logits(), 1).0], &[WEIGHTS.scale * losses], 1e-12);
}

#[test]
fn the_gradient_is_that_of_differences() {
    assert_gradient(&run::<f64>(&logits(), 1).1, &logits(), |logits| run::<f64>(logits, 1).0);
}

#[test]
fn parts_of_the_vocabulary_give_the_same() {
    let (expected, gradient) = run::<f64>(&logits(), 1);
    for ranks in [2, 4] {
        let (loss, d_logits) = run::<f64>(&logits(), ranks);
        assert_close(&[loss], &[expected], 1e-12);
        assert_close(&d_logits, &gradient, 1e-12);
    }
}

#[test]
fn lower_precisions_agree() {
    let (expected, gradient) = run::<f64>(&logits(), 1);
    let (loss, d_logits) = run::<f32>(&logits(), 1);
    assert_close(&[loss], &[expected], SINGLE);
    assert_close(&d_logits, &gradient, SINGLE);
    let (loss, d_logits) = run::<bf16>(&logits(), 1);
    assert_close(&[loss], &[expected], SINGLE);
    assert_close(&d_logits, &gradient, BRAIN);
}
