//! Whether memory grows from step to step.

/// With fewer steps than these there is no telling.
const FEWEST_STEPS: usize = 4;

/// How much more is allocated at the end of a step than at the end of the one before: the median. Of two in the middle it
/// is the one nearer to nothing, so that memory is said to grow only when it does so in more than half of the steps.
///
/// What the first step leaves for good, such as the optimizer's state, is there at its end and no growth. The last step
/// ends with its last activity and not where another begins, and some step may allocate for good: the median does not
/// mind.
pub(super) fn growth_per_step(step_ends: &[u64]) -> Option<f64> {
    if step_ends.len() < FEWEST_STEPS {
        return None;
    }
    let mut changes: Vec<i128> = step_ends.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
    changes.sort_unstable();
    let (low, high) = (changes[(changes.len() - 1) / 2], changes[changes.len() / 2]);
    Some(if low.abs() <= high.abs() { low } else { high } as f64)
}

#[cfg(test)]
mod tests {
    use super::growth_per_step;

    #[test]
    fn a_leak_is_found_and_nothing_else() {
        for (ends, growth) in [
            (vec![0, 7, 14], None),
            (vec![0, 7, 14, 21], Some(7.0)),
            (vec![21, 14, 7, 0], Some(-7.0)),
            (vec![5; 4], Some(0.0)),
            // Something is allocated for good in the second step, and the last ends with its scratch allocated.
            (vec![5, 9, 9, 9, 11], Some(0.0)),
            (vec![5, 9, 9, 9, 9, 11], Some(0.0)),
            // A leak beside noise.
            (vec![100, 110, 120, 930, 140, 150, 160, 0], Some(10.0)),
            // Every other step, and no more.
            (vec![0, 0, 8, 8, 16], Some(0.0)),
            (vec![0, u64::MAX, 0, u64::MAX], Some(u64::MAX as f64)),
        ] {
            assert_eq!(growth_per_step(&ends), growth, "{ends:?}");
        }
    }
}
