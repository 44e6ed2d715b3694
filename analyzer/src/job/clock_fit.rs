//! One clock told by another: a straight line, to the nanosecond near its base, wherever in time that is.

/// No two clocks drift apart faster than this: what says so is wrong.
const LARGEST_DRIFT: f64 = 0.01;
/// What two clocks may be off by that are read one after the other, in nanoseconds.
const NOISE_OF_CLOCKS: f64 = 100.0;
/// What the ends of a collective may be off by.
const NOISE_OF_ENDS: f64 = 10_000.0;
/// So many readings tell themselves how much they are off by.
const FEW: usize = 4;
/// A drift counts if it is this many times larger than noise.
const SIGNIFICANT: f64 = 3.0;
/// Into how many stretches of time bounds are sorted at most, and how many bounds one has at least.
const MOST_STRETCHES: usize = 64;
const LEAST_OF_A_STRETCH: usize = 8;

/// A time of one clock and the time of another at the same moment.
pub(crate) type Reading = (i64, i64);

/// Turns a time of one clock into a time of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockFit {
    /// Where the offset holds. Wider than a time, as the sum of two times is.
    base: i128,
    offset: i128,
    drift: f64,
}

impl ClockFit {
    /// Of a clock to itself.
    pub(crate) const IDENTITY: ClockFit = ClockFit { base: 0, offset: 0, drift: 0.0 };

    fn at(self, time: i128) -> i128 {
        time + self.offset + (self.drift * (time - self.base) as f64).round() as i128
    }

    /// The second clock's time.
    pub(crate) fn map(self, time: i64) -> i64 {
        clamped(self.at(time.into()))
    }

    /// What to add to this time.
    pub(crate) fn offset_at(self, time: i64) -> i64 {
        clamped(self.at(time.into()) - i128::from(time))
    }

    /// What the second clock gains on the first, in nanoseconds a nanosecond.
    pub(crate) fn drift(self) -> f64 {
        self.drift
    }

    /// From the first clock to a third, by the way from the second to the third.
    pub(crate) fn then(self, next: ClockFit) -> ClockFit {
        let there = next.at(self.base + self.offset);
        let drift = self.drift + next.drift + self.drift * next.drift;
        ClockFit { base: self.base, offset: there - self.base, drift }
    }

    /// From the second clock to the first.
    pub(crate) fn inverse(self) -> ClockFit {
        ClockFit { base: self.base + self.offset, offset: -self.offset, drift: -self.drift / (1.0 + self.drift) }
    }

    /// The line through readings of both clocks.
    pub(crate) fn through_clocks(readings: &[Reading]) -> Option<ClockFit> {
        ClockFit::fit(readings, 0.0, NOISE_OF_CLOCKS)
    }

    /// The line through ends that are one moment.
    pub(crate) fn through(readings: &[Reading], expected_drift: f64) -> Option<ClockFit> {
        ClockFit::fit(readings, expected_drift, NOISE_OF_ENDS)
    }

    /// The line through readings, of which some may be far off.
    ///
    /// Its drift is the median of those of readings half the list apart, its offset the median of theirs; then least
    /// squares over the readings that lie near. A drift that may be chance is replaced by the expected one.
    fn fit(readings: &[Reading], expected_drift: f64, noise_of_few: f64) -> Option<ClockFit> {
        let wide = |(first, second): &Reading| i128::from(*second) - i128::from(*first);
        let base = i128::from(median(readings.iter().map(|(first, _)| *first).collect())?);
        let offset = median(readings.iter().map(wide).collect())?;
        let relative = |reading: &Reading| ((i128::from(reading.0) - base) as f64, (wide(reading) - offset) as f64);
        let mut points: Vec<(f64, f64)> = readings.iter().map(relative).collect();
        points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let (shift, drift) = robust(&points, expected_drift, noise_of_few);
        Some(ClockFit { base, offset: offset + shift.round() as i128, drift })
    }

    /// The line between bounds: readings whose second time is right or too early, and such whose second time is right or
    /// too late.
    ///
    /// In each of some stretches of time the tightest bounds count, and their middle where there are both: messages
    /// that nothing delayed.
    pub(crate) fn between(too_early: &[Reading], too_late: &[Reading], expected_drift: f64) -> Option<ClockFit> {
        let mut bounds: Vec<(Reading, bool)> = too_early.iter().map(|reading| (*reading, true)).collect();
        bounds.extend(too_late.iter().map(|reading| (*reading, false)));
        bounds.sort_unstable();
        let all: Vec<Reading> = bounds.iter().map(|(reading, _)| *reading).collect();
        let mut fit = ClockFit::through(&all, expected_drift)?;
        // Bounds are compared across a stretch by the drift known so far; once it is better known, again.
        for _ in 0..2 {
            let stretch = bounds.len().div_ceil(MOST_STRETCHES).max(LEAST_OF_A_STRETCH);
            let tight: Vec<Reading> = bounds.chunks(stretch).filter_map(|bounds| tightest(bounds, fit)).collect();
            fit = ClockFit::through(&tight, fit.drift)?;
        }
        Some(fit)
    }
}

/// The reading that the tightest of some bounds come to.
fn tightest(bounds: &[(Reading, bool)], fit: ClockFit) -> Option<Reading> {
    let beyond = |reading: &Reading| i128::from(reading.1) - fit.at(reading.0.into());
    let readings = |early: bool| bounds.iter().filter(move |(_, is)| *is == early).map(|(reading, _)| *reading);
    let early = readings(true).max_by_key(beyond);
    let late = readings(false).min_by_key(beyond);
    let (time, shift) = match (early, late) {
        (Some(early), Some(late)) => {
            let middle = |one: i128, other: i128| (one + other).div_euclid(2);
            (clamped(middle(early.0.into(), late.0.into())), middle(beyond(&early), beyond(&late)))
        }
        (Some(only), None) | (None, Some(only)) => (only.0, beyond(&only)),
        (None, None) => return None,
    };
    Some((time, clamped(fit.at(time.into()) + shift)))
}

/// Offset at zero and drift of points that are sorted.
fn robust(points: &[(f64, f64)], expected_drift: f64, noise_of_few: f64) -> (f64, f64) {
    let half = points.len().div_ceil(2);
    let pairs = points.iter().zip(&points[half.min(points.len())..]).filter(|(one, other)| one.0 < other.0);
    let slopes: Vec<f64> = pairs.map(|(one, other)| (other.1 - one.1) / (other.0 - one.0)).collect();
    let drift = median_of(slopes).unwrap_or(expected_drift);
    let offset = |drift: f64| median_of(points.iter().map(|(x, y)| y - drift * x).collect()).unwrap_or(0.0);
    let middle = offset(drift);
    let off = |(x, y): &(f64, f64)| (y - middle - drift * x).abs();
    // The median of what normal deviates are off by is two thirds of their standard deviation.
    let noise = 1.5 * median_of(points.iter().map(off).collect()).unwrap_or(0.0);
    let near: Vec<(f64, f64)> = points.iter().filter(|point| off(point) <= (3.0 * noise).max(2.0)).copied().collect();
    let count = near.len().max(1) as f64;
    let mean = near.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (mut along, mut across) = (0.0, 0.0);
    for (x, y) in &near {
        along += (x - mean.0) * (x - mean.0);
        across += (x - mean.0) * (y - mean.1);
    }
    let fitted = across / along;
    let noise = if near.len() < FEW { noise_of_few } else { noise.max(1.0) };
    // Not so for a drift that is not a number: all readings are of one moment.
    let counts = (fitted - expected_drift).abs() > SIGNIFICANT * noise / along.sqrt() && fitted.abs() < LARGEST_DRIFT;
    if counts { (mean.1 - fitted * mean.0, fitted) } else { (offset(expected_drift), expected_drift) }
}

fn median_of(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

fn clamped(time: i128) -> i64 {
    time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Readings every millisecond from a time on.
    fn readings(from: i64, count: i64, second: impl Fn(i64) -> i64) -> Vec<Reading> {
        (0..count).map(|index| from + index * 1_000_000).map(|time| (time, second(time))).collect()
    }

    #[test]
    fn few_readings_say_what_they_can() {
        assert_eq!(ClockFit::through(&[], 0.0), None);
        let one = ClockFit::through(&[(100, 1_100)], 0.0).unwrap();
        assert_eq!((one.map(0), one.map(100), one.map(i64::MAX)), (1_000, 1_100, i64::MAX));
        // Two a second apart, and far enough off to be sure of a drift.
        let two = ClockFit::through(&[(0, 0), (SECOND, SECOND + 100_000)], 0.0).unwrap();
        assert_eq!((two.map(SECOND / 2), (two.drift() * 1e9).round()), (SECOND / 2 + 50_000, 100_000.0));
        // Two that may as well be noise: the expected drift it is, from the middle on.
        let noisy = ClockFit::through(&[(0, 0), (SECOND / 1_000, SECOND / 1_000 + 100)], 0.0).unwrap();
        assert_eq!(noisy.drift(), 0.0);
        // All of one moment.
        let moment = ClockFit::through(&[(7, 10), (7, 11), (7, 12), (7, 13), (7, 14)], 0.0).unwrap();
        assert_eq!(moment.map(7), 12);
    }

    #[test]
    fn some_readings_that_are_far_off_do_not_matter() {
        let mut readings = readings(5 * SECOND, 1_000, |time| time - 3 * SECOND + time / 20_000);
        for index in (0..1_000).step_by(7) {
            readings[index].1 += if index % 2 == 0 { SECOND } else { i64::MIN / 4 };
        }
        let fit = ClockFit::through(&readings, 0.0).unwrap();
        for time in [5 * SECOND, 6 * SECOND] {
            assert!((fit.map(time) - (time - 3 * SECOND + time / 20_000)).abs() <= 1);
        }
    }

    #[test]
    fn messages_that_are_late_only_bound() {
        // Every message takes a while, some two hundred microseconds and more; few in each direction take none.
        let truth = |time: i64| time + 1_000_000 + time / 10_000;
        let late = |time: i64| time * 7_919 / 1_000_000 % 20 * 50_000;
        let too_late = readings(0, 2_000, |time| truth(time) + late(time));
        let too_early = readings(400_000, 2_000, |time| truth(time) - late(time - 400_000));
        let fit = ClockFit::between(&too_early, &too_late, 0.0).unwrap();
        for time in [0, SECOND, 2 * SECOND] {
            assert!((fit.map(time) - truth(time)).abs() < 1_000, "{} at {time}", fit.map(time) - truth(time));
        }
        let fit = ClockFit::between(&[], &too_late, 0.0).unwrap();
        assert!((fit.map(SECOND) - truth(SECOND)).abs() < 1_000);
    }

    proptest! {
        /// Wherever in time, nothing overflows, and near the base it is right to the nanosecond or two.
        #[test]
        fn fits_are_right_to_the_nanosecond(
            base in -(1_i64 << 62)..1_i64 << 62,
            other in -(1_i64 << 62)..1_i64 << 62,
            drift in -1_000_000..1_000_000_i64,
            far in any::<i64>(),
        ) {
            let second = |time: i64| other.saturating_add((time - base) + ((time - base) as i128 * drift as i128 / 1_000_000_000) as i64);
            let fit = ClockFit::through(&readings(base, 1_000, second), 0.0).unwrap();
            for time in [base, base + SECOND / 2, base + SECOND] {
                prop_assert!((fit.map(time) - second(time)).abs() <= 2);
                prop_assert!((fit.inverse().map(second(time)) - time).abs() <= 2);
                prop_assert!((fit.then(fit.inverse()).map(time) - time).abs() <= 2);
            }
            fit.map(far);
            fit.then(fit).inverse().offset_at(far);
        }

        #[test]
        fn any_readings_make_a_fit(
            some in prop::collection::vec((any::<i64>(), any::<i64>()), 0..20),
            more in prop::collection::vec((any::<i64>(), any::<i64>()), 0..20),
            time in any::<i64>(),
        ) {
            let fit = ClockFit::between(&some, &more, 0.0);
            prop_assert_eq!(fit.is_some(), !some.is_empty() || !more.is_empty());
            fit.unwrap_or(ClockFit::IDENTITY).map(time);
        }
    }
}
