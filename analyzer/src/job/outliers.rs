//! Which ranks stand out in a figure.
//!
//! A rank stands out that is above the median by more than three times what ranks usually are away from it (the median of
//! their distances, scaled as for a normal distribution), and by enough to matter.

use stepscope_traces::Rank;

use crate::figures::{Analysis, CountedTime};

/// How many usual distances a rank that stands out is away.
const FAR: f64 = 3.0;
/// The median of distances of a normal distribution, as a part of its deviation, turned around.
const NORMAL: f64 = 1.4826;
/// A part of the step, or of the memory, that matters.
const MATTERS: f64 = 0.02;

/// How the values of a figure are spread over ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// From the least to the most, with as much between them as matters; none without values.
    pub range: Option<(f64, f64)>,
    /// What most ranks are like.
    pub median: Option<f64>,
    /// Who is above this stands out.
    limit: f64,
    /// Ranks that stand out, the worst first.
    pub outliers: Vec<Rank>,
}

impl Spread {
    /// Of the values of ranks, which are parts of something that is usually so large.
    pub fn of(values: &[(Rank, f64)], whole: f64) -> Spread {
        let matters = MATTERS * whole;
        let numbers = || values.iter().map(|(_, value)| *value);
        let Some(middle) = median(numbers().collect()) else {
            return Spread { range: None, median: None, limit: f64::INFINITY, outliers: Vec::new() };
        };
        let distance = median(numbers().map(|value| (value - middle).abs()).collect()).unwrap_or(0.0);
        let limit = middle + (FAR * NORMAL * distance).max(matters);
        let mut outliers: Vec<(Rank, f64)> = values.iter().copied().filter(|(_, value)| *value > limit).collect();
        outliers.sort_by(|one, other| other.1.total_cmp(&one.1));
        let least = numbers().fold(f64::INFINITY, f64::min);
        let most = numbers().fold(0.0, f64::max).max(least + matters);
        let outliers = outliers.into_iter().map(|(rank, _)| rank).collect();
        Spread { range: Some((least, most)), median: Some(middle), limit, outliers }
    }

    /// Whether a rank with such a value stands out.
    pub fn stands_out(&self, value: f64) -> bool {
        value > self.limit
    }

    /// How far up a value is, from the least to the most.
    pub fn share(&self, value: f64) -> f64 {
        self.range.map_or(0.0, |(least, most)| if most > least { (value - least) / (most - least) } else { 0.0 })
    }
}

/// The ranks that stand out in an analysis: those that others wait for, then those that compute longer; the worst first.
pub fn outliers(analysis: &Analysis) -> Vec<Rank> {
    let steps = |time: &CountedTime| time.mean(|time| time.span_ns) as f64;
    let whole = median(analysis.counted.iter().map(steps).collect()).unwrap_or(0.0);
    let windows = analysis.counted.iter().map(|time| time.windows).max().unwrap_or(1).max(1) as f64;
    let waited: Vec<(Rank, f64)> = analysis
        .stragglers
        .iter()
        .map(|straggler| (straggler.rank, straggler.caused_wait_ns as f64 / windows))
        .collect();
    let computes: Vec<(Rank, f64)> =
        analysis.counted.iter().map(|time| (time.rank, time.mean(|time| time.compute_ns) as f64)).collect();
    let mut ranks = Spread::of(&waited, whole).outliers;
    for rank in Spread::of(&computes, whole).outliers {
        if !ranks.contains(&rank) {
            ranks.push(rank);
        }
    }
    ranks
}

/// The value in the middle; the mean of both, where there are two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let (middle, is_even) = (values.len() / 2, values.len().is_multiple_of(2));
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(*upper, |lower| f64::midpoint(lower, *upper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64], whole: f64) -> Spread {
        let values: Vec<(Rank, f64)> = (0..).map(Rank).zip(values.iter().copied()).collect();
        Spread::of(&values, whole)
    }

    #[test]
    fn who_is_far_from_the_others_stands_out() {
        let one = spread(&[10.0, 10.1, 9.9, 10.0, 14.0, 10.1, 20.0], 10.0);
        assert_eq!(one.outliers, [Rank(6), Rank(4)], "the worst first");
        assert_eq!((one.range, one.median), (Some((9.9, 20.0)), Some(10.1)));
        assert!(spread(&[1.0, 4.0, 2.0, 3.0, 5.0], 0.0).outliers.is_empty(), "spread evenly");
        assert!(spread(&[10.0, 10.0, 10.0, 10.1], 10.0).outliers.is_empty(), "it does not matter");
        assert_eq!(spread(&[0.0, 0.0, 0.0, 5.0], 50.0).outliers, [Rank(3)], "of nothing, anything");
        assert!(spread(&[], 1.0).range.is_none());
    }

    #[test]
    fn differences_that_do_not_matter_stay_small() {
        let alike = spread(&[100.0, 101.0], 500.0);
        assert_eq!(alike.share(101.0), 0.1);
        assert_eq!(alike.share(100.0), 0.0);
        assert_eq!(spread(&[0.0, 0.0], 0.0).share(0.0), 0.0);
    }

    #[test]
    fn of_an_even_number_the_median_is_between_both() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 10.0]), Some(3.0));
        assert_eq!(median(vec![5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
