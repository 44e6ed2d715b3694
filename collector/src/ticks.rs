//! Time on the hot path: a counter that is read in half the time of a clock, and turned into times by the writer.

use quanta::Clock;
use stepscope_traces::{ClockMap, Nanos, now};

/// A reading of the processor's counter; of the system's clock where that has none to rely on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks(pub(crate) u64);

/// Reads the counter.
pub(crate) struct TickCounter(Clock);

impl TickCounter {
    pub(crate) fn new() -> TickCounter {
        TickCounter(Clock::new())
    }

    #[inline]
    pub(crate) fn read(&self) -> Ticks {
        Ticks(self.0.raw())
    }
}

impl Ticks {
    /// Nanoseconds since an earlier reading, by the counter's own calibration: near enough for a cost.
    pub(crate) fn nanos_since(self, earlier: Ticks, counter: &TickCounter) -> u64 {
        counter.0.delta_as_nanos(earlier.0, self.0)
    }
}

/// Turns readings of the counter into times of the rank's clock.
#[derive(Default)]
pub(crate) struct TickMap(ClockMap);

impl TickMap {
    /// Reads both. Every reading of the counter that was made before this call now lies between two points.
    pub(crate) fn anchor(&mut self, counter: &TickCounter) {
        // Of a few tries the one in which least time passed: a thread may be put aside between two readings.
        let tries = (0..3).map(|_| {
            let before = counter.read();
            let time = now();
            let passed = counter.read().0.saturating_sub(before.0);
            (passed, before.0 + passed / 2, time)
        });
        if let Some((_, ticks, time)) = tries.min_by_key(|(passed, ..)| *passed) {
            self.0.add(ticks as i64, time.0);
        }
    }

    pub(crate) fn time(&self, ticks: Ticks) -> Nanos {
        self.0.map(ticks.0 as i64).map_or(Nanos(0), Nanos)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ticks_become_times_of_the_clock() {
        let counter = TickCounter::new();
        let mut map = TickMap::default();
        map.anchor(&counter);
        let readings: Vec<_> = (0..20)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(2));
                let before = now();
                let ticks = counter.read();
                let after = now();
                map.anchor(&counter);
                (before, ticks, after)
            })
            .collect();
        // A thread may be put aside between two readings of an anchor: most must fit, not each one.
        let slack = Nanos(20_000);
        let fits = readings.iter().filter(|(before, ticks, after)| {
            let time = map.time(*ticks);
            *before - slack < time && time < *after + slack
        });
        assert!(fits.count() >= 15, "{readings:?}");
    }
}
