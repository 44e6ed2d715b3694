//! CUPTI's clock, in which all records are, and how it becomes the rank's.
//!
//! CUPTI would also take a clock of ours. But for a device that is in use already it goes on with its own, in some
//! versions, and after being detached and attached for some kernels; so both clocks are read together instead. PyTorch's
//! profiler gives CUPTI one that counts the processor's ticks, and leaves it there.

use stepscope_traces::{ClockMap, Nanos, now};

/// The time of day, CUPTI's clock, is set now and then. When the two clocks differ by more since the last reading, it was.
const SET_BY: Nanos = Nanos(1_000_000);
const TRIES: usize = 8;

/// Readings of both clocks at the same moments.
#[derive(Default)]
pub(crate) struct CuptiClock {
    map: ClockMap,
    last: Option<ClockReading>,
    /// How fast CUPTI's clock ran between the last two readings.
    rate: Option<f64>,
    uncertainty: Nanos,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(crate) cupti: i64,
    pub(crate) rank: Nanos,
    /// How far apart the two may be.
    pub(crate) uncertainty: Nanos,
}

impl ClockReading {
    /// Reads both clocks; of a few tries the one in which least time passed.
    pub(crate) fn take(cupti: impl Fn() -> Option<u64>) -> Option<ClockReading> {
        let tries = (0..TRIES).filter_map(|_| {
            let before = now();
            let cupti = cupti()? as i64;
            let uncertainty = Nanos((now() - before).0 / 2);
            Some(ClockReading { cupti, rank: before + uncertainty, uncertainty })
        });
        tries.min_by_key(|reading| reading.uncertainty)
    }
}

impl CuptiClock {
    /// Adds a reading. What ran before it then lies between two.
    pub(crate) fn add(&mut self, reading: ClockReading) {
        if let Some(last) = self.last {
            let (cupti, rank) = ((reading.cupti - last.cupti) as f64, (reading.rank - last.rank).0 as f64);
            // In nanoseconds, or as fast as it ran before; how fast that is, the first two readings say.
            let rates = [1.0, self.rate.unwrap_or(cupti / rank)];
            let is_as_expected = |rate: f64| (cupti - rate * rank).abs() <= SET_BY.0 as f64;
            if cupti <= 0.0 || !rates.into_iter().any(is_as_expected) {
                self.map = ClockMap::default();
            }
            self.rate = Some(cupti / rank).filter(|rate| rate.is_finite());
        }
        self.map.add(reading.cupti, reading.rank.0);
        self.uncertainty = self.uncertainty.max(reading.uncertainty);
        self.last = Some(reading);
    }

    /// The rank's time for a time of CUPTI.
    pub(crate) fn time(&self, cupti: u64) -> Nanos {
        Nanos(self.map.map(cupti as i64).unwrap_or(cupti as i64))
    }

    /// How far off a time may be, at worst.
    pub(crate) fn uncertainty(&self) -> Nanos {
        self.uncertainty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(cupti: i64, rank: i64) -> ClockReading {
        ClockReading { cupti, rank: Nanos(rank), uncertainty: Nanos(rank % 7) }
    }

    #[test]
    fn times_lie_between_the_readings_around_them() {
        let mut clock = CuptiClock::default();
        assert_eq!(clock.time(5), Nanos(5), "nothing is known yet");
        // The time of day runs a little fast.
        for step in 0..10 {
            clock.add(reading(1_000_000_000_000 + step * 10_001_000, 500 + step * 10_000_000));
        }
        assert_eq!(clock.time(1_000_000_000_000 + 5 * 10_001_000), Nanos(500 + 50_000_000));
        assert_eq!(clock.time(1_000_000_000_000 + 10_001_000 / 2), Nanos(500 + 5_000_000));
        assert!(clock.uncertainty() <= Nanos(6));
    }

    #[test]
    fn a_clock_that_is_set_is_read_anew() {
        for jump in [-3_000_000_000, 3_000_000_000] {
            let mut clock = CuptiClock::default();
            clock.add(reading(10_000_000_000, 0));
            clock.add(reading(10_010_000_000, 10_000_000));
            clock.add(reading(10_020_000_000 + jump, 20_000_000));
            clock.add(reading(10_030_000_000 + jump, 30_000_000));
            assert_eq!(clock.time((10_025_000_000 + jump) as u64), Nanos(25_000_000));
        }
    }

    #[test]
    fn a_clock_may_count_something_else_than_nanoseconds() {
        let mut clock = CuptiClock::default();
        for step in 0..5 {
            clock.add(reading(7_000_000_000 + step * 21_000_000, 500 + step * 10_000_000));
        }
        for step in 0..5 {
            assert_eq!(clock.time(7_000_000_000 + step * 21_000_000 / 2), Nanos(500 + step.cast_signed() * 5_000_000));
        }
    }

    #[test]
    fn both_clocks_are_read_at_the_same_moment() {
        let offset = 1_000_000;
        let reading = ClockReading::take(|| Some(now().0 as u64 + offset)).unwrap();
        let apart = Nanos(reading.cupti - offset as i64) - reading.rank;
        assert!(apart.0.abs() <= reading.uncertainty.0 + 1, "{reading:?}");
        assert!(ClockReading::take(|| None).is_none());
    }
}
