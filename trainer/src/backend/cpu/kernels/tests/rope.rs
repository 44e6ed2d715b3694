//! Rotations.

use half::bf16;

use super::super::{
    Direction::{self, Backward, Forward},
    Element, Heads, rope,
};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, dot, random, stored};

const SHAPE: Heads = Heads { batch: 2, sequence: 5, heads: 4, kv_heads: 2, head_dim: 6, causal: true };

fn rotated<E: Element>(shape: &Heads, qkv: &[f64], direction: Direction) -> Vec<E> {
    let mut qkv = stored(qkv);
    rope(shape, 0, &mut qkv, direction, 10_000_f64);
    qkv
}

fn qkv(shape: &Heads) -> Vec<f64> {
    random(1, shape.tokens() * shape.qkv_width())
}

#[test]
fn every_pair_is_turned_by_its_angle() {
    let shape = Heads { batch: 1, sequence: 3000, heads: 1, kv_heads: 1, head_dim: 4, causal: true };
    let qkv = qkv(&shape);
    let rotated = rotated::<f64>(&shape, &qkv, Forward);
    for (position, (before, after)) in qkv.chunks(12).zip(rotated.chunks(12)).enumerate() {
        for head in [0, 4] {
            for pair in 0..2 {
                let (sine, cosine) = (position as f64 * 10_000_f64.powf(-(pair as f64) / 2.0)).sin_cos();
                let (x, y) = (before[head + pair], before[head + pair + 2]);
                let expected = [x * cosine - y * sine, y * cosine + x * sine];
                assert_close(&[after[head + pair], after[head + pair + 2]], &expected, 1e-11);
            }
        }
        assert_eq!(before[8..], after[8..], "values stay");
    }
}

#[test]
fn a_part_of_a_sequence_is_turned_as_in_the_whole() {
    let whole = Heads { batch: 1, sequence: 3000, heads: 1, kv_heads: 1, head_dim: 4, causal: true };
    let (first, part) = (2500, Heads { sequence: 500, ..whole });
    let qkv = qkv(&whole);
    for direction in [Forward, Backward] {
        let mut turned = qkv[first * 12..].to_vec();
        rope(&part, first, &mut turned, direction, 10_000_f64);
        assert_close(&turned, &rotated::<f64>(&whole, &qkv, direction)[first * 12..], 1e-11);
    }
}

#[test]
fn there_and_back_again_is_the_identity() {
    let qkv = qkv(&SHAPE);
    let rotated_once: Vec<f64> = rotated(&SHAPE, &qkv, Forward);
    assert_close(&rotated::<f64>(&SHAPE, &rotated_once, Backward), &qkv, 1e-14);
}

#[test]
fn products_of_queries_and_keys_depend_on_their_distance_only() {
    let shape = Heads { batch: 1, sequence: 40, heads: 1, kv_heads: 1, head_dim: 8, causal: true };
    let token = random(1, shape.qkv_width());
    let rotated = rotated::<f64>(&shape, &token.repeat(shape.sequence), Forward);
    let rows: Vec<&[f64]> = rotated.chunks(shape.qkv_width()).collect();
    for distance in [0, 1, 7] {
        let products: Vec<f64> =
            rows.windows(distance + 1).map(|rows| dot(&rows[distance][..8], &rows[0][8..16])).collect();
        assert_close(&products, &vec![products[0]; products.len()], 1e-12);
    }
}

#[test]
fn the_gradient_is_that_of_differences() {
    let qkv = qkv(&SHAPE);
    let weights = random(2, qkv.len());
    let gradient = rotated::<f64>(&SHAPE, &weights, Backward);
    assert_gradient(&gradient, &qkv, |qkv| dot(&rotated(&SHAPE, qkv, Forward), &weights));
}

#[test]
fn lower_precisions_agree() {
    let expected = rotated::<f64>(&SHAPE, &qkv(&SHAPE), Forward);
    assert_close(&rotated::<f32>(&SHAPE, &qkv(&SHAPE), Forward), &expected, SINGLE);
    assert_close(&rotated::<bf16>(&SHAPE, &qkv(&SHAPE), Forward), &expected, BRAIN);
}
