//! Operations on every element.

use half::bf16;

use super::super::add;
use super::{assert_close, random, stored};

#[test]
fn additions_are_rounded_once() {
    let (mut target, other) = (stored::<_, bf16>(&random(1, 50)), random(2, 50));
    let expected: Vec<f64> = random(1, 50).iter().zip(&other).map(|(a, b)| a + b).collect();
    add(&mut target, &stored::<_, bf16>(&other));
    assert_eq!(target, stored::<_, bf16>(&expected));
    let mut wide: Vec<f32> = stored(&random(1, 50));
    add(&mut wide, &stored::<_, bf16>(&other));
    assert_close(&wide, &expected, 1e-7);
}
