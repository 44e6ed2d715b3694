//! Mixtures of experts: which experts a token goes to, the way there, and the way back.
//!
//! A token's k choices are numbered one after another: choice `j` of token `t` is `t·k + j`. `order` has the numbers of all
//! choices sorted by expert, so row `i` of what is sorted is of token `order[i] / k`; `places` says of each choice which row it is.

use num_traits::Zero;

use super::{Element, Real, elementwise, vectorised};
use crate::backend::Routing;

/// Turns the logits of each token into probabilities, in place; takes the largest of them, of equal ones the first; and makes
/// their weights add up to one.
pub(crate) fn route<S: Real>(routing: Routing, probabilities: &mut [S], weights: &mut [S], choices: &mut [u32]) {
    let Routing { experts, top_k, .. } = routing;
    let rows = probabilities.chunks_exact_mut(experts);
    for ((row, weights), choices) in rows.zip(weights.chunks_exact_mut(top_k)).zip(choices.chunks_exact_mut(top_k)) {
        let most = row.iter().fold(S::neg_infinity(), |most, logit| most.max(*logit));
        let mut sum = S::zero();
        for logit in row.iter_mut() {
            *logit = (*logit - most).exp();
            sum += *logit;
        }
        row.iter_mut().for_each(|probability| *probability /= sum);
        for choice in 0..top_k {
            let free = (0..experts).filter(|expert| !choices[..choice].contains(&(*expert as u32)));
            let best = free.reduce(|best, expert| if row[expert] > row[best] { expert } else { best });
            choices[choice] = best.unwrap_or(0) as u32;
        }
        let chosen = choices.iter().map(|expert| row[*expert as usize]).fold(S::zero(), |sum, one| sum + one);
        for (weight, expert) in weights.iter_mut().zip(&*choices) {
            *weight = row[*expert as usize] / chosen;
        }
    }
}

/// How often each sequence chose each expert.
pub(crate) fn count_choices<S: Real>(routing: Routing, choices: &[u32], counts: &mut [S]) {
    counts.fill(S::zero());
    for (token, choices) in choices.chunks_exact(routing.top_k).enumerate() {
        let of_sequence = &mut counts[routing.sequence_of(token) * routing.experts..][..routing.experts];
        choices.iter().for_each(|expert| of_sequence[*expert as usize] += S::one());
    }
}

/// Adds to the loss how unevenly each sequence chose: `E·Σ f·P` over experts, where `f` is an expert's share of the choices and
/// `P` its mean probability. That is 1 if all are chosen equally often. Of a sequence in parts, each adds what its tokens have of
/// the mean.
pub(crate) fn balance_loss<S: Real>(routing: Routing, probabilities: &[S], counts: &[S], total: &mut [S]) {
    let slopes = slopes(routing, counts);
    // Each part by itself: next to a large sum, what a token adds is rounded away.
    for (part, rows) in probabilities.chunks(routing.chunk * routing.experts).enumerate() {
        let tokens = rows.chunks_exact(routing.experts).zip(part * routing.chunk..);
        total[0] += tokens.fold(S::zero(), |sum, (row, token)| {
            let slopes = of_token(routing, token, &slopes);
            sum + row.iter().zip(slopes).fold(S::zero(), |sum, (probability, slope)| sum + *probability * *slope)
        });
    }
}

/// What tokens chose: probabilities, weights, choices, and how often each sequence chose each expert.
pub(crate) type Routed<'a, S> = (&'a [S], &'a [S], &'a [u32], &'a [S]);

/// The gradient of the logits, from that of the weights and of the balance loss. Which experts are chosen does not change.
pub(crate) fn route_backward<E: Element>(
    routing: Routing,
    (probabilities, weights, choices, counts): Routed<'_, E::Sum>,
    d_weights: &[E::Sum],
    d_logits: &mut [E],
) {
    let Routing { experts, top_k, .. } = routing;
    let slopes = slopes(routing, counts);
    let mut d_row = vec![E::Sum::zero(); experts];
    let tokens = probabilities.chunks_exact(experts).zip(choices.chunks_exact(top_k));
    let of_weights = weights.chunks_exact(top_k).zip(d_weights.chunks_exact(top_k));
    let rows = tokens.zip(of_weights).zip(d_logits.chunks_exact_mut(experts));
    for (token, (((row, choices), (weights, d_weights)), d_logits)) in rows.enumerate() {
        d_row.copy_from_slice(of_token(routing, token, &slopes));
        let chosen = choices.iter().fold(E::Sum::zero(), |sum, expert| sum + row[*expert as usize]);
        let mean = weights.iter().zip(d_weights).fold(E::Sum::zero(), |sum, (weight, d)| sum + *weight * *d);
        for (expert, d_weight) in choices.iter().zip(d_weights) {
            d_row[*expert as usize] += (*d_weight - mean) / chosen;
        }
        let mean = row.iter().zip(&d_row).fold(E::Sum::zero(), |sum, (probability, d)| sum + *probability * *d);
        for ((d_logit, probability), d) in d_logits.iter_mut().zip(row).zip(&d_row) {
            *d_logit = E::narrow(*probability * (*d - mean));
        }
    }
}

/// How much the loss grows with each probability of an expert, by sequence.
fn slopes<S: Real>(routing: Routing, counts: &[S]) -> Vec<S> {
    let slope = S::of(routing.slope());
    counts.iter().map(|count| slope * *count).collect()
}

/// What a token's sequence has of each expert.
fn of_token<S>(routing: Routing, token: usize, of_sequences: &[S]) -> &[S] {
    &of_sequences[routing.sequence_of(token) * routing.experts..][..routing.experts]
}

/// Sorts rows of tokens by expert: each as often as its token has choices.
pub(crate) fn dispatch<E: Element>(tokens: &[E], order: &[u32], top_k: usize, sorted: &mut [E]) {
    let width = sorted.len() / order.len().max(1);
    for (row, choice) in sorted.chunks_exact_mut(width.max(1)).zip(order) {
        row.copy_from_slice(&tokens[*choice as usize / top_k * width..][..width]);
    }
}

/// Adds up the rows of each token's choices, by their weights if they have any.
pub(crate) fn combine<E: Element>(
    sorted: &[E],
    places: &[u32],
    weights: Option<&[E::Sum]>,
    top_k: usize,
    tokens: &mut [E],
) {
    let width = sorted.len() / places.len().max(1);
    let mut sums = vec![E::Sum::zero(); width];
    vectorised(
        #[inline(always)]
        || {
            for (token, row) in tokens.chunks_exact_mut(width.max(1)).enumerate() {
                sums.fill(E::Sum::zero());
                for choice in token * top_k..(token + 1) * top_k {
                    let from = &sorted[places[choice] as usize * width..][..width];
                    match weights {
                        Some(weights) => {
                            let weight = weights[choice];
                            sums.iter_mut().zip(from).for_each(|(sum, value)| *sum += weight * value.widen());
                        }
                        None => elementwise::add_inline(&mut sums, from),
                    }
                }
                row.iter_mut().zip(&sums).for_each(|(to, sum)| *to = E::narrow(*sum));
            }
        },
    );
}

/// The gradients of what is combined: of its rows, and of the weights.
pub(crate) fn combine_backward<E: Element>(
    d_tokens: &[E],
    (sorted, order, weights): (&[E], &[u32], &[E::Sum]),
    top_k: usize,
    d_sorted: &mut [E],
    d_weights: &mut [E::Sum],
) {
    let width = (sorted.len() / order.len().max(1)).max(1);
    let rows = sorted.chunks_exact(width).zip(d_sorted.chunks_exact_mut(width));
    for ((row, d_row), choice) in rows.zip(order) {
        let choice = *choice as usize;
        let d_token = &d_tokens[choice / top_k * width..][..width];
        let dot = |sum, (one, other): (&E, &E)| sum + one.widen() * other.widen();
        d_weights[choice] = d_token.iter().zip(row).fold(E::Sum::zero(), dot);
        for (d, d_token) in d_row.iter_mut().zip(d_token) {
            *d = E::narrow(weights[choice] * d_token.widen());
        }
    }
}
