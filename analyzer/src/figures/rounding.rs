//! Means in whole nanoseconds that still add up.

/// Divides parts by a number so that the results are whole, and add up to the rounded quotient of their sum: each is
/// rounded down, and what is missing goes to those that lost most.
pub(crate) fn divided(parts: &[i128], by: i128) -> Vec<i64> {
    let by = by.max(1);
    let mut quotients: Vec<i128> = parts.iter().map(|part| part.div_euclid(by)).collect();
    let whole = rounded(parts.iter().sum(), by);
    let missing = whole - quotients.iter().sum::<i128>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(parts[*index].rem_euclid(by)), *index));
    order.iter().take(missing.max(0) as usize).for_each(|index| quotients[*index] += 1);
    quotients.into_iter().map(|quotient| quotient.clamp(i64::MIN.into(), i64::MAX.into()) as i64).collect()
}

/// The nearest whole number to a quotient; the greater one, if it is in the middle.
fn rounded(number: i128, by: i128) -> i128 {
    (2 * number + by).div_euclid(2 * by)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thirds_make_a_whole() {
        assert_eq!(divided(&[1, 1, 1], 3), [1, 0, 0]);
        assert_eq!(divided(&[10, 20, 3], 3), [3, 7, 1]);
        assert_eq!(divided(&[], 7), Vec::<i64>::new());
    }

    proptest! {
        #[test]
        fn parts_add_up_and_are_no_more_than_one_off(parts in prop::collection::vec(-1_000_i64..1 << 50, 0..20), by in 1_i64..10_000) {
            let wide: Vec<i128> = parts.iter().map(|part| i128::from(*part)).collect();
            let divided = divided(&wide, by.into());
            prop_assert_eq!(divided.iter().map(|part| i128::from(*part)).sum::<i128>(), rounded(wide.iter().sum(), by.into()));
            for (whole, part) in divided.iter().zip(&parts) {
                prop_assert!((*whole as f64 - *part as f64 / by as f64).abs() <= 1.0);
            }
        }
    }
}
