//! Cross entropy over a vocabulary of which each rank may hold a part.
//!
//! In steps, between which ranks combine what they have: the maxima of the rows, then the sums, then the loss.

use num_traits::Zero;

use super::{Element, Real, embedding::row, lanes, vectorised};
use crate::backend::LossWeights;

/// The largest logit of every row.
pub(crate) fn row_maxima<E: Element>(logits: &[E], columns: usize, maxima: &mut [E::Sum]) {
    assert_eq!(logits.len(), maxima.len() * columns);
    vectorised(
        #[inline(always)]
        || {
            for (logits, maximum) in logits.chunks_exact(columns).zip(maxima) {
                *maximum = lanes::maximum(logits);
            }
        },
    );
}

/// For every row the sum of exp(logit − maximum), then for every row the target's logit, which is 0 if these columns
/// of the vocabulary, `first` and those after it, do not have it.
pub(crate) fn row_sums<E: Element>(
    logits: &[E],
    columns: usize,
    maxima: &[E::Sum],
    targets: &[u32],
    first: u32,
    sums: &mut [E::Sum],
) {
    let rows = maxima.len();
    assert!(logits.len() == rows * columns && targets.len() == rows && sums.len() == 2 * rows, "{rows} rows");
    let (sums, target_logits) = sums.split_at_mut(rows);
    vectorised(
        #[inline(always)]
        || {
            let inputs = logits.chunks_exact(columns).zip(maxima).zip(targets);
            for (((logits, maximum), target), (sum, target_logit)) in inputs.zip(sums.iter_mut().zip(target_logits)) {
                *sum = lanes::sum(
                    logits,
                    #[inline(always)]
                    |logit| (logit.widen() - *maximum).exponential(),
                );
                *target_logit = row(*target, first, columns).map_or_else(E::Sum::zero, |column| logits[column].widen());
            }
        },
    );
}

/// Adds to the total the weighted sum of the rows' losses, from what all ranks together have.
pub(crate) fn loss<S: Real>(maxima: &[S], sums: &[S], weights: LossWeights, total: &mut [S]) {
    assert!(sums.len() == 2 * maxima.len() && total.len() == 1);
    let (sums, target_logits) = sums.split_at(maxima.len());
    let rows = maxima.iter().zip(sums).zip(target_logits);
    let losses = rows.map(|((maximum, sum), target)| {
        let z = maximum.double() + sum.double().ln();
        (maximum.double() - target.double()) + sum.double().ln() + weights.z * z * z
    });
    total[0] += S::of(weights.scale * losses.sum::<f64>());
}

/// The gradient of [`loss`]: scale · (softmax · (1 + 2 · z · log of the sum) − 1 at the target).
#[expect(clippy::too_many_arguments, reason = "they are what the steps before it had")]
pub(crate) fn loss_backward<E: Element>(
    logits: &[E],
    columns: usize,
    maxima: &[E::Sum],
    sums: &[E::Sum],
    targets: &[u32],
    first: u32,
    weights: LossWeights,
    d_logits: &mut [E],
) {
    let rows = maxima.len();
    assert!(logits.len() == rows * columns && targets.len() == rows && sums.len() == 2 * rows, "{rows} rows");
    assert_eq!(logits.len(), d_logits.len());
    let scale = E::Sum::of(weights.scale);
    vectorised(
        #[inline(always)]
        || {
            let inputs = logits.chunks_exact(columns).zip(maxima).zip(sums).zip(targets);
            for ((((logits, maximum), sum), target), d_logits) in inputs.zip(d_logits.chunks_exact_mut(columns)) {
                let z = maximum.double() + sum.double().ln();
                let factor = E::Sum::of(weights.scale * (1.0 + 2.0 * weights.z * z)) / *sum;
                for (d_logit, logit) in d_logits.iter_mut().zip(logits) {
                    *d_logit = E::narrow((logit.widen() - *maximum).exponential() * factor);
                }
                if let Some(column) = row(*target, first, columns) {
                    // Computed again, so that it is rounded once.
                    let probability = (logits[column].widen() - *maximum).exponential() * factor;
                    d_logits[column] = E::narrow(probability - scale);
                }
            }
        },
    );
}
