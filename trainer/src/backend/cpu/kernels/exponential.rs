//! The exponential function without a call or a branch, so that loops over it vectorise.

use std::f32::consts::LOG2_E;

/// Below this the result is zero: it would be less than 2.5e-38, near the smallest number with full precision.
const LEAST: f32 = -86.6;
/// Above this the result is infinite.
const MOST: f32 = 88.722_83;
/// ln 2 in two parts; the first has so few bits that its product with any exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Added and taken away again, it rounds to the nearest whole number.
const ROUNDER: f32 = 12_582_912.0;
/// The polynomial of Cephes for (e^r - 1 - r) / r², where |r| is at most half of ln 2.
const COEFFICIENTS: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// e to the power of `x`, with a relative error below 2e-7; NaN stays NaN.
#[inline(always)]
pub(crate) fn single(x: f32) -> f32 {
    let clamped = if x < LEAST { LEAST } else { x };
    let clamped = if clamped > MOST { MOST } else { clamped };
    let shifted = clamped.mul_add(LOG2_E, ROUNDER);
    let whole = shifted - ROUNDER;
    let rest = (-whole).mul_add(LN_2[1], (-whole).mul_add(LN_2[0], clamped));
    let mut polynomial = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = polynomial.mul_add(rest, *coefficient);
    }
    let power = polynomial.mul_add(rest * rest, rest) + 1.0;
    // The lowest bits of `shifted` are the whole number. Half of the power of two, because 2^128 is not a number.
    let half_scale = f32::from_bits(shifted.to_bits().wrapping_add(126) << 23);
    let result = power * half_scale * 2.0;
    let result = if x < LEAST { 0.0 } else { result };
    if x > MOST { f32::INFINITY } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relative_error_is_small() {
        let mut worst = 0.0_f64;
        for step in 0..=1_753_000 {
            let x = LEAST + step as f32 * 1e-4;
            if x > MOST {
                break;
            }
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(single(x)) / exact - 1.0).abs());
        }
        assert!(worst < 2e-7, "{worst:e}");
    }

    #[test]
    fn the_ends_are_those_of_the_function() {
        assert_eq!(single(0.0), 1.0);
        assert_eq!(single(f32::NEG_INFINITY), 0.0);
        assert_eq!(single(-87.0), 0.0);
        assert_eq!(single(f32::INFINITY), f32::INFINITY);
        assert_eq!(single(89.0), f32::INFINITY);
        assert!(single(f32::NAN).is_nan());
        assert!(single(MOST).is_finite());
    }
}
