//! Attention against a softmax that has the whole matrix.

use std::ops::Range;

use half::bf16;
use proptest::prelude::*;

use super::super::{Columns, Element, Heads, Scratch, attention, attention_backward, columns, merge_attention};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, dot, random, stored};

/// The keys that a token's query sees.
fn seen(shape: &Heads, token: usize) -> Range<usize> {
    let first = token / shape.sequence * shape.sequence;
    first..if shape.causal { token + 1 } else { first + shape.sequence }
}

fn naive(shape: &Heads, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let Heads { batch, sequence, heads, kv_heads, head_dim, .. } = *shape;
    let at = |token: usize, head: usize| &qkv[token * shape.qkv_width() + head * head_dim..][..head_dim];
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for token in 0..batch * sequence {
        for head in 0..heads {
            let kv_head = head * kv_heads / heads;
            let keys = seen(shape, token);
            let scale = (head_dim as f64).sqrt();
            let powers: Vec<f64> =
                keys.clone().map(|key| (dot(at(token, head), at(key, heads + kv_head)) / scale).exp()).collect();
            let sum: f64 = powers.iter().sum();
            lse.push(sum.ln());
            for index in 0..head_dim {
                let values = keys.clone().map(|key| at(key, heads + kv_heads + kv_head)[index]);
                out.push(values.zip(&powers).map(|(value, power)| value * power / sum).sum());
            }
        }
    }
    (out, lse)
}

fn forward<E: Element>(shape: &Heads, qkv: &[E]) -> (Vec<E>, Vec<E::Sum>) {
    let mut out = vec![E::default(); shape.tokens() * shape.out_width()];
    let mut lse = vec![E::Sum::default(); shape.tokens() * shape.heads];
    attention(shape, qkv, &mut out, &mut lse, &mut Scratch::default());
    (out, lse)
}

fn backward<E: Element>(shape: &Heads, qkv: &[f64], d_out: &[f64]) -> Vec<E> {
    let qkv = stored::<_, E>(qkv);
    let (out, lse) = forward(shape, &qkv);
    let mut d_qkv = vec![E::narrow(E::Sum::default()); qkv.len()];
    attention_backward(shape, &qkv, &out, &lse, &stored(d_out), &mut d_qkv, &mut Scratch::default());
    d_qkv
}

/// Queries long enough for scores of some size.
fn qkv(shape: &Heads) -> Vec<f64> {
    random(1, shape.tokens() * shape.qkv_width()).iter().map(|value| value * 4.0).collect()
}

fn check(shape: &Heads) {
    let qkv = qkv(shape);
    let (out, lse) = naive(shape, &qkv);
    let double = forward::<f64>(shape, &qkv);
    assert_close(&double.0, &out, 1e-12);
    assert_close(&double.1, &lse, 1e-12);
    let single = forward::<f32>(shape, &stored(&qkv));
    assert_close(&single.0, &out, 8.0 * SINGLE);
    assert_logarithms(shape, &qkv, &single.1, &lse);
    let brain = forward::<bf16>(shape, &stored(&qkv));
    assert_close(&brain.0, &out, BRAIN);
    assert_logarithms(shape, &qkv, &brain.1, &lse);
}

/// Rounding follows what is summed up in a score, which may be far larger than the score.
fn assert_logarithms(shape: &Heads, qkv: &[f64], actual: &[f32], expected: &[f64]) {
    let magnitudes: Vec<f64> = qkv.iter().map(|value| value.abs()).collect();
    let at = |token: usize, head: usize| &magnitudes[token * shape.qkv_width() + head * shape.head_dim..];
    assert_eq!(actual.len(), expected.len());
    for (row, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let (token, head) = (row / shape.heads, row % shape.heads);
        let kv_head = shape.heads + head * shape.kv_heads / shape.heads;
        let summed = seen(shape, token).map(|key| {
            let (query, key) = (&at(token, head)[..shape.head_dim], &at(key, kv_head)[..shape.head_dim]);
            dot(query, key) / (shape.head_dim as f64).sqrt()
        });
        let rounding = 1.5 * f64::from(f32::EPSILON) * summed.fold(0.0, f64::max);
        let tolerance = rounding.max(SINGLE * expected.abs().max(1.0));
        assert!((f64::from(*actual) - expected).abs() <= tolerance, "{row}: {actual} rather than {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_are_those_of_the_whole_matrix(
        (batch, sequence, kv_heads) in (1_usize..3, 1_usize..200, 1_usize..3),
        (group, head_dim, causal) in (1_usize..4, 1_usize..40, any::<bool>()),
    ) {
        check(&Heads { batch, sequence, heads: group * kv_heads, kv_heads, head_dim, causal });
    }
}

#[test]
fn a_score_that_is_small_beside_its_terms_is_as_exact_as_they_are() {
    check(&Heads { batch: 1, sequence: 1, heads: 4, kv_heads: 2, head_dim: 38, causal: true });
}

#[test]
fn tiles_end_where_they_should() {
    for sequence in [1, 63, 64, 65, 128, 129] {
        for causal in [true, false] {
            check(&Heads { batch: 2, sequence, heads: 2, kv_heads: 1, head_dim: 16, causal });
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let shape = Heads { batch: 1, sequence: 100, heads: 1, kv_heads: 1, head_dim: 16, causal: true };
    let qkv: Vec<f32> = qkv(&shape).iter().map(|value| *value as f32 * 100.0).collect();
    let (out, lse) = forward(&shape, &qkv);
    assert!(out.iter().chain(&lse).all(|value| value.is_finite()));
}

#[test]
fn the_gradient_is_that_of_differences() {
    let shapes = [(1, 5, 2, 1, 4), (2, 3, 4, 2, 6), (1, 3, 3, 3, 17), (1, 66, 2, 1, 2)];
    for ((batch, sequence, heads, kv_heads, head_dim), causal) in
        shapes.map(|shape| [(shape, true), (shape, false)]).concat()
    {
        let shape = Heads { batch, sequence, heads, kv_heads, head_dim, causal };
        let qkv = random(1, shape.tokens() * shape.qkv_width());
        let d_out = random(2, shape.tokens() * shape.out_width());
        let gradient = backward::<f64>(&shape, &qkv, &d_out);
        assert_gradient(&gradient, &qkv, |qkv| dot(&forward(&shape, qkv).0, &d_out));
    }
}

/// The second half of a sequence attends to itself and to the first half: what both give, merged, is what the whole gives, and
/// so are the gradients of both, added up.
#[test]
fn attention_to_parts_is_attention_to_all() {
    let whole = Heads { batch: 1, sequence: 140, heads: 4, kv_heads: 2, head_dim: 12, causal: true };
    let half = Heads { sequence: 70, ..whole };
    let (width, out_width, query) = (whole.qkv_width(), whole.out_width(), whole.out_width());
    let qkv = qkv(&whole);
    let d_out = random(2, whole.tokens() * out_width);
    let (out, lse) = forward::<f64>(&whole, &qkv);
    let d_qkv = backward::<f64>(&whole, &qkv, &d_out);

    let (first, second) = qkv.split_at(half.tokens() * width);
    let mut mixed = second.to_vec();
    let keys = Columns { count: width - query, from: (width, query), to: (width, query), accumulate: false };
    columns(keys, first, &mut mixed);
    let full = Heads { causal: false, ..half };
    let (mut merged, mut merged_lse) = forward::<f64>(&half, second);
    let (more, more_lse) = forward::<f64>(&full, &mixed);
    merge_attention::<f64>(half.head_dim, (&mut merged, &mut merged_lse), (&more, &more_lse));
    assert_close(&merged, &out[half.tokens() * out_width..], 1e-12);
    assert_close(&merged_lse, &lse[half.tokens() * half.heads..], 1e-12);

    let gradient = |shape: &Heads, qkv: &[f64], (out, lse): (&[f64], &[f64]), d_out: &[f64]| {
        let mut d_qkv = vec![f64::NAN; qkv.len()];
        attention_backward(shape, qkv, out, lse, d_out, &mut d_qkv, &mut Scratch::default());
        d_qkv
    };
    let (d_first, d_second) = d_out.split_at(half.tokens() * out_width);
    let mut to_itself = gradient(&half, second, (&merged, &merged_lse), d_second);
    let to_first = gradient(&full, &mixed, (&merged, &merged_lse), d_second);
    columns(Columns { count: query, from: (width, 0), to: (width, 0), accumulate: true }, &to_first, &mut to_itself);
    assert_close(&to_itself, &d_qkv[half.tokens() * width..], 1e-12);
    let (own, own_lse) = forward::<f64>(&half, first);
    let mut of_first = gradient(&half, first, (&own, &own_lse), d_first);
    columns(Columns { accumulate: true, ..keys }, &to_first, &mut of_first);
    assert_close(&of_first, &d_qkv[..half.tokens() * width], 1e-12);
}

#[test]
fn gradients_of_lower_precisions_agree() {
    let shape = Heads { batch: 1, sequence: 150, heads: 4, kv_heads: 2, head_dim: 24, causal: true };
    let qkv = random(1, shape.tokens() * shape.qkv_width());
    let d_out = random(2, shape.tokens() * shape.out_width());
    let expected = backward::<f64>(&shape, &qkv, &d_out);
    assert_close(&backward::<f32>(&shape, &qkv, &d_out), &expected, 4.0 * SINGLE);
    // Its result, which the gradient starts from, was rounded too.
    assert_close(&backward::<bf16>(&shape, &qkv, &d_out), &expected, 2.0 * BRAIN);
}

#[test]
fn two_calls_are_bit_identical_whatever_the_scratch_held() {
    let shape = Heads { batch: 1, sequence: 70, heads: 2, kv_heads: 1, head_dim: 20, causal: true };
    let larger = Heads { sequence: 130, ..shape };
    let qkv: Vec<f32> = stored(&qkv(&larger));
    let d_out: Vec<f32> = stored(&random(2, shape.tokens() * shape.out_width()));
    let mut scratch = Scratch::default();
    let run = |scratch: &mut Scratch| {
        let qkv = &qkv[..shape.tokens() * shape.qkv_width()];
        let mut out = vec![0.0; d_out.len()];
        let mut lse = vec![0.0; shape.tokens() * shape.heads];
        attention(&shape, qkv, &mut out, &mut lse, scratch);
        let mut d_qkv = vec![f32::NAN; qkv.len()];
        attention_backward(&shape, qkv, &out, &lse, &d_out, &mut d_qkv, scratch);
        [out, lse, d_qkv].map(|values| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
    };
    let first = run(&mut scratch);
    let mut out = vec![0.0; larger.tokens() * larger.out_width()];
    attention(&larger, &qkv, &mut out, &mut vec![0.0; larger.tokens() * larger.heads], &mut scratch);
    assert_eq!(first, run(&mut scratch));
}
