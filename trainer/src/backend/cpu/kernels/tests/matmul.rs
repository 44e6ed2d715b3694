//! Products against three loops.

use half::bf16;
use proptest::prelude::*;

use super::super::{Element, Product, Scratch, matmul};
use super::{BRAIN, SINGLE, assert_close, random, stored};

fn naive(product: &Product, a: &[f64], b: &[f64], out: &mut [f64]) {
    let Product { rows, columns, inner, transpose_a, transpose_b, accumulate } = *product;
    for row in 0..rows {
        for column in 0..columns {
            let sum: f64 = (0..inner)
                .map(|index| {
                    let a = if transpose_a { a[index * rows + row] } else { a[row * inner + index] };
                    a * if transpose_b { b[column * inner + index] } else { b[index * columns + column] }
                })
                .sum();
            let out = &mut out[row * columns + column];
            *out = if accumulate { *out + sum } else { sum };
        }
    }
}

fn check<E: Element, O: Element<Sum = E::Sum>>(product: &Product, tolerance: f64) {
    let Product { rows, columns, inner, .. } = *product;
    let (a, b) = (random(1, rows * inner), random(2, inner * columns));
    let before = random(3, rows * columns);
    let mut expected = before.clone();
    naive(product, &a, &b, &mut expected);
    let mut scratch = Scratch::default();
    let run = |scratch: &mut Scratch| {
        let mut out = stored::<_, O>(&before);
        matmul::<E, O>(product, &stored(&a), &stored(&b), &mut out, scratch);
        out
    };
    let out = run(&mut scratch);
    assert_close(&out, &expected, tolerance);
    let again = run(&mut scratch);
    assert_eq!(bytemuck::cast_slice::<_, u8>(&out), bytemuck::cast_slice::<_, u8>(&again), "bit-identical");
}

fn check_all_precisions(product: &Product) {
    check::<f64, f64>(product, 1e-12);
    check::<f32, f32>(product, SINGLE);
    check::<bf16, f32>(product, SINGLE);
    check::<bf16, bf16>(product, BRAIN);
    check::<f32, bf16>(product, BRAIN);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_are_those_of_three_loops(
        (rows, columns, inner) in (0_usize..40, 0_usize..40, 0_usize..40),
        (transpose_a, transpose_b, accumulate) in any::<(bool, bool, bool)>(),
    ) {
        check_all_precisions(&Product { rows, columns, inner, transpose_a, transpose_b, accumulate });
    }
}

#[test]
fn shapes_longer_than_a_block_are_put_together() {
    for bits in 0..8 {
        let [transpose_a, transpose_b, accumulate] = [1, 2, 4].map(|bit| bits & bit != 0);
        for (rows, columns, inner) in [(300, 3, 2), (2, 530, 3), (3, 5, 1100), (257, 513, 3)] {
            check_all_precisions(&Product { rows, columns, inner, transpose_a, transpose_b, accumulate });
        }
    }
}

#[test]
fn scratch_stays_within_its_blocks() {
    let mut scratch = Scratch::default();
    let product =
        Product { rows: 700, columns: 600, inner: 600, transpose_a: false, transpose_b: true, accumulate: false };
    let (a, b) = (vec![bf16::ONE; 700 * 600], vec![bf16::ONE; 600 * 600]);
    let mut out = vec![bf16::ZERO; 700 * 600];
    matmul(&product, &a, &b, &mut out, &mut scratch);
    assert!(out.iter().all(|sum| sum.to_f32() == 600.0));
    assert_eq!(scratch.place().unwrap().1, 2 << 20);
}
