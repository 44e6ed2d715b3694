//! The rank's clock, and what ties it to the time of day.

use chrono::{DateTime, Utc};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// Now, on the clock every rank of this machine shares: `CLOCK_MONOTONIC`.
pub fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time of day, also where that is before 1970: on a machine whose clock was never set.
pub(crate) fn time_of_day() -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(read(ClockId::CLOCK_REALTIME).0)
}

fn read(clock: ClockId) -> Nanos {
    // These two clocks exist on every system this builds for.
    clock_gettime(clock).map_or(Nanos(0), |time| Nanos(time.tv_sec() * Nanos::SECOND.0 + time.tv_nsec()))
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSnapshot {
    /// The rank's clock.
    pub rank_ns: Nanos,
    /// Nanoseconds since 1970, UTC.
    pub wall_ns: Nanos,
}

impl ClockSnapshot {
    /// Reads both clocks; of a few tries the one in which least time passed in between.
    pub fn take() -> ClockSnapshot {
        let tries = (0..8).map(|_| {
            let before = now();
            let wall_ns = read(ClockId::CLOCK_REALTIME);
            let after = now();
            (after - before, ClockSnapshot { rank_ns: Nanos(before.0 + (after - before).0 / 2), wall_ns })
        });
        tries.min_by_key(|(uncertainty, _)| *uncertainty).map_or_else(
            || ClockSnapshot { rank_ns: now(), wall_ns: read(ClockId::CLOCK_REALTIME) },
            |(_, snapshot)| snapshot,
        )
    }
}

/// Readings of two clocks at the same moments: turns a time of the first into a time of the second.
///
/// Between two readings it is a straight line. However long it goes on, it keeps few readings: when there are too many,
/// every second one goes, and old times are mapped a little differently from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockMap {
    /// Of the first clock and of the second, oldest first.
    readings: Vec<(i64, i64)>,
}

impl ClockMap {
    const MOST_READINGS: usize = 4096;

    /// Adds a reading that is newer than the others.
    pub fn add(&mut self, first: i64, second: i64) {
        thin(&mut self.readings, Self::MOST_READINGS);
        self.readings.push((first, second));
    }

    /// The time of the second clock for a time of the first, by the two readings around it or the two nearest.
    pub fn map(&self, time: i64) -> Option<i64> {
        let after = self.readings.partition_point(|(first, _)| *first <= time);
        let index = after.saturating_sub(1).min(self.readings.len().saturating_sub(2));
        let from = *self.readings.get(index)?;
        // One reading alone says nothing of the rate.
        let to = self.readings.get(index + 1).copied().unwrap_or((from.0 + 1, from.1 + 1));
        let share = (time - from.0) as f64 / (to.0 - from.0).max(1) as f64;
        Some(from.1 + ((to.1 - from.1) as f64 * share).round() as i64)
    }
}

/// Makes room for one more.
fn thin<T>(items: &mut Vec<T>, most: usize) {
    if items.len() >= most {
        let mut keep = false;
        items.retain(|_| {
            keep = !keep;
            keep
        });
    }
}

/// How a rank's clock relates to the time of day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRecord {
    /// Which clock times are in: ranks of one host that name the same one share it.
    pub source: String,
    /// Oldest first; the first one is the anchor.
    pub snapshots: Vec<ClockSnapshot>,
}

impl ClockRecord {
    /// How many snapshots a rank keeps, however long it runs.
    const MOST_SNAPSHOTS: usize = 128;

    /// A record that begins now.
    pub fn begin() -> ClockRecord {
        ClockRecord { source: "CLOCK_MONOTONIC".into(), snapshots: vec![ClockSnapshot::take()] }
    }

    /// Adds a snapshot.
    pub fn add(&mut self, snapshot: ClockSnapshot) {
        thin(&mut self.snapshots, Self::MOST_SNAPSHOTS);
        self.snapshots.push(snapshot);
    }

    /// From the rank's clock to the time of day.
    pub fn wall_clock(&self) -> ClockMap {
        ClockMap { readings: self.snapshots.iter().map(|snapshot| (snapshot.rank_ns.0, snapshot.wall_ns.0)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_goes_through_its_readings() {
        let map = |readings: &[(i64, i64)], time| ClockMap { readings: readings.to_vec() }.map(time);
        assert_eq!(map(&[], 5), None);
        assert_eq!(map(&[(10, 1000)], 5), Some(995));
        let drifting = [(0, 1000), (100, 1200), (200, 1300)];
        assert_eq!(map(&drifting, 50), Some(1100));
        assert_eq!(map(&drifting, 150), Some(1250));
        assert_eq!(map(&drifting, 200), Some(1300));
        assert_eq!(map(&drifting, -50), Some(900), "before the first: the first rate");
        assert_eq!(map(&drifting, 300), Some(1400), "after the last: the last rate");
    }

    #[test]
    fn a_long_run_keeps_its_first_reading_and_few_others() {
        let mut map = ClockMap::default();
        (0..100_000).for_each(|time| map.add(time, 2 * time));
        assert!(map.readings.len() <= ClockMap::MOST_READINGS);
        assert_eq!(map.readings[0], (0, 0));
        assert!(map.readings.is_sorted());
        assert_eq!(map.map(77_777), Some(155_554));
    }

    #[test]
    fn the_two_clocks_are_read_together() {
        let (one, two) = (ClockSnapshot::take(), ClockSnapshot::take());
        let disagreement = (two.rank_ns - one.rank_ns) - (two.wall_ns - one.wall_ns);
        assert!(disagreement.0.abs() < Nanos::SECOND.0);
    }
}
