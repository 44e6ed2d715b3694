//! Microseconds as traces write them, to the nanosecond.
//!
//! A time since 1970 in microseconds with three decimals has more digits than a float holds, so it never becomes one.

use super::digits::number_of_digits;

/// Digits that fit a number together; what follows them is finer than anything we keep.
const MOST_DIGITS: u32 = 19;

/// A JSON number of microseconds in nanoseconds, to the nearest; none where it is no number, or none of our times.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    thousandths(text).or_else(|| any_nanoseconds(text))
}

/// A number with three decimals, as nearly all are. So many digits fit.
fn thousandths(text: &str) -> Option<i64> {
    let point = text.len().checked_sub(4).filter(|point| *point <= 15)?;
    let (whole, fraction) = text.as_bytes().split_at(point);
    let (b'.', fraction) = fraction.split_first()? else { return None };
    let (whole, fraction) = (number_of_digits(whole)?, number_of_digits(fraction)?);
    i64::try_from(whole * 1000 + fraction).ok()
}

fn any_nanoseconds(text: &str) -> Option<i64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() {
        return None;
    }
    let (mut digits, mut kept) = (0_u64, 0_u32);
    // A nanosecond is the third decimal.
    let mut scale = exponent.checked_add(3)?;
    for (digit, is_fraction) in whole.bytes().map(|digit| (digit, false)).chain(fraction.bytes().map(|d| (d, true))) {
        if !digit.is_ascii_digit() {
            return None;
        }
        if kept < MOST_DIGITS {
            digits = digits * 10 + u64::from(digit - b'0');
            kept += u32::from(digits > 0);
            scale = scale.checked_sub(i32::from(is_fraction))?;
        } else {
            scale = scale.checked_add(i32::from(!is_fraction))?;
        }
    }
    let nanoseconds = scaled(digits.into(), scale)?;
    i64::try_from(if negative { -nanoseconds } else { nanoseconds }).ok()
}

/// `digits` times ten to the power of `scale`, to the nearest.
fn scaled(digits: i128, scale: i32) -> Option<i128> {
    // Three decimals, as Kineto writes them.
    if scale == 0 {
        return Some(digits);
    }
    let power = 10_i128.checked_pow(scale.unsigned_abs());
    match power {
        _ if digits == 0 => Some(0),
        Some(power) if scale >= 0 => digits.checked_mul(power),
        Some(power) => Some((digits + power / 2) / power),
        // So many decimals that nothing is left of it.
        None => (scale < 0).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::nanoseconds;

    #[test]
    fn times_by_hand() {
        for (text, expected) in [
            ("3845755518549.965", Some(3_845_755_518_549_965)),
            ("1794702781549965.123", Some(1_794_702_781_549_965_123)),
            ("0", Some(0)),
            ("-0.5", Some(-500)),
            ("12", Some(12_000)),
            ("0.0004", Some(0)),
            ("0.0005", Some(1)),
            ("1.7e15", Some(1_700_000_000_000_000_000)),
            ("1.5E-2", Some(15)),
            ("0e999999999", Some(0)),
            ("1e-999999999", Some(0)),
            ("0.00000000000000000000000000000000000000000000001", Some(0)),
            ("1e99", None),
            ("1e99999999999", None),
            ("99999999999999999999999999999999999999999999", None),
            ("9300000000000000000", None),
            ("", None),
            (".5", None),
            ("-", None),
            ("NaN", None),
            ("\"12\"", None),
            ("1.2.3", None),
            ("null", None),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn three_decimals_are_exact(time in any::<i64>()) {
            let magnitude = i128::from(time).abs();
            let sign = if time < 0 { "-" } else { "" };
            let text = format!("{sign}{}.{:03}", magnitude / 1000, magnitude % 1000);
            prop_assert_eq!(nanoseconds(&text), Some(time));
        }

        #[test]
        fn any_text_is_a_number_or_none(text in "[-+0-9.eE]{0,60}") {
            nanoseconds(&text);
        }
    }
}
