//! How sure a change is: 95% intervals from the steps' own spread, by a bootstrap over blocks of steps.
//!
//! Steps that follow each other are alike, so blocks of them are drawn, around the end of the run if need be: of n steps,
//! ∛n in a block, and no more than 64 blocks. Each side is drawn by itself, a thousand times, from one seed, so that the
//! answer is the same each time. All figures use the same draws.
//!
//! Means of few blocks spread less when drawn again than they do in truth. So what is drawn is widened by √(k/(k−1)), k
//! being the blocks, and the percentiles by Student's t over the normal distribution, with Welch's degrees of freedom. Of
//! one step nothing is known.

use serde::Serialize;
use statrs::{
    distribution::{ContinuousCDF, Normal, StudentsT},
    statistics::{Data, OrderStatistics, Statistics},
};

const DRAWS: usize = 1000;
const MOST_BLOCKS: usize = 64;
const SEED: u64 = 95;
/// The share of chance that lies on each side of an interval.
const TAIL: f64 = 0.025;

/// What a change lies between, in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// It is hardly less.
    pub low: f64,
    /// It is hardly more.
    pub high: f64,
}

impl Interval {
    /// Whether there is a change at all.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// How sure a change of time is.
pub(super) struct Judged {
    pub(super) low_ns: Option<i64>,
    pub(super) high_ns: Option<i64>,
    pub(super) significant: bool,
}

/// What was drawn of both sides.
pub(crate) struct Resampling {
    base: Draws,
    other: Draws,
}

/// What was drawn of some steps: where blocks begin.
struct Draws {
    steps: usize,
    /// How many steps a block has.
    block: usize,
    begins: Vec<Vec<usize>>,
}

/// A figure of each step: of a mean, the figure and one; of a ratio of sums, both of them.
pub(crate) struct Series {
    pub(crate) above: Vec<f64>,
    pub(crate) below: Vec<f64>,
}

impl Series {
    /// A mean over steps.
    pub(crate) fn mean(values: Vec<f64>) -> Series {
        let below = vec![1.0; values.len()];
        Series { above: values, below }
    }

    /// The figure over all steps; none where there is nothing to divide by.
    pub(crate) fn value(&self) -> Option<f64> {
        quotient(self.above.iter().sum(), self.below.iter().sum())
    }
}

fn quotient(above: f64, below: f64) -> Option<f64> {
    (below > 0.0).then(|| above / below)
}

impl Resampling {
    /// Draws for this many steps; none if a side has fewer than two.
    pub(crate) fn of(base: usize, other: usize) -> Option<Resampling> {
        let mut random = fastrand::Rng::with_seed(SEED);
        (base.min(other) > 1)
            .then(|| Resampling { base: Draws::of(base, &mut random), other: Draws::of(other, &mut random) })
    }

    /// What the change of a figure lies between.
    pub(crate) fn change(&self, base: &Series, other: &Series) -> Option<Interval> {
        let change = other.value()? - base.value()?;
        let (base, other) = (self.base.deviations(base)?, self.other.deviations(other)?);
        let (of_base, of_other) = (variance(&base.values), variance(&other.values));
        let spread = of_base + of_other;
        if spread <= 0.0 || !spread.is_finite() {
            return Some(Interval { low: change, high: change });
        }
        let freedom = spread.powi(2) / (of_base.powi(2) / base.freedom + of_other.powi(2) / other.freedom);
        let wider = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(TAIL) / Normal::standard().inverse_cdf(TAIL);
        let mut changes =
            Data::new(base.values.iter().zip(&other.values).map(|(base, other)| other - base).collect::<Vec<_>>());
        let [low, high] = [TAIL, 1.0 - TAIL].map(|share| change + wider * changes.quantile(share));
        Some(Interval { low, high })
    }
}

fn variance(values: &[f64]) -> f64 {
    values.iter().variance()
}

/// How far from the figure of all steps those of the draws are.
struct Deviations {
    values: Vec<f64>,
    freedom: f64,
}

impl Draws {
    fn of(steps: usize, random: &mut fastrand::Rng) -> Draws {
        let block = ((steps as f64).cbrt() + 1e-9).floor().max(1.0) as usize;
        let block = block.max(steps.div_ceil(MOST_BLOCKS));
        // Two of them at least, or nothing would spread.
        let block = block.min(steps / 2).max(1);
        let blocks = steps.div_ceil(block);
        let begins = (0..DRAWS).map(|_| (0..blocks).map(|_| random.usize(0..steps)).collect()).collect();
        Draws { steps, block, begins }
    }

    fn deviations(&self, series: &Series) -> Option<Deviations> {
        let whole = series.value()?;
        let (above, below) = (self.blocks(&series.above), self.blocks(&series.below));
        let sum = |blocks: &[f64], begins: &[usize]| begins.iter().map(|begin| blocks[*begin]).sum::<f64>();
        let drawn = self.begins.iter().map(|begins| quotient(sum(&above, begins), sum(&below, begins)));
        let blocks = self.steps.div_ceil(self.block) as f64;
        let wider = (blocks / (blocks - 1.0)).sqrt();
        // What has nothing to divide by is as if nothing had changed.
        let values = drawn.map(|value| wider * (value.unwrap_or(whole) - whole)).collect();
        Some(Deviations { values, freedom: blocks - 1.0 })
    }

    /// The sum of the block that begins at each step.
    fn blocks(&self, values: &[f64]) -> Vec<f64> {
        let at = |begin: usize| (begin..begin + self.block).map(|step| values[step % self.steps]).sum();
        (0..self.steps).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    fn noisy(random: &mut fastrand::Rng, steps: usize, mean: f64) -> Series {
        Series::mean((0..steps).map(|_| mean * (1.0 + 0.01 * normal(random))).collect())
    }

    /// How often, of five hundred pairs, the interval has the true change in it.
    fn coverage(steps: usize) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let resampling = Resampling::of(steps, steps).unwrap();
        let covers = (0..500).filter(|_| {
            let (base, other) = (noisy(&mut random, steps, 100.0), noisy(&mut random, steps, 102.0));
            let Interval { low, high } = resampling.change(&base, &other).unwrap();
            low <= 2.0 && 2.0 <= high
        });
        covers.count() as f64 / 500.0
    }

    #[test]
    fn intervals_have_the_truth_in_them_as_often_as_they_say() {
        for steps in [4, 10, 30, 100] {
            let coverage = coverage(steps);
            println!("{steps} steps: {:.1}% of the intervals have the true change in them", 100.0 * coverage);
            assert!((0.91..=0.99).contains(&coverage), "{steps} steps: {coverage}");
        }
    }

    #[test]
    fn the_answer_is_the_same_each_time() {
        let mut random = fastrand::Rng::with_seed(1);
        let (base, other) = (noisy(&mut random, 20, 5.0), noisy(&mut random, 9, 6.0));
        let change = || Resampling::of(20, 9).unwrap().change(&base, &other);
        assert_eq!(change(), change());
        assert!(change().unwrap().excludes_zero());
    }

    #[test]
    fn what_does_not_spread_is_certain_and_one_step_says_nothing() {
        let same = |value: f64| Series::mean(vec![value; 5]);
        let interval = Resampling::of(5, 5).unwrap().change(&same(3.0), &same(4.0)).unwrap();
        assert_eq!(interval, Interval { low: 1.0, high: 1.0 });
        assert!(Resampling::of(1, 5).is_none());
        let nothing = Series { above: vec![0.0; 5], below: vec![0.0; 5] };
        assert!(Resampling::of(5, 5).unwrap().change(&nothing, &same(1.0)).is_none());
    }
}
