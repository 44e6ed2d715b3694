//! Memory over time in a few points, of which none that stands out is lost.

use super::{MemoryPoint, replay::Event, stretch::Stretch};

/// How many points there are at most.
pub(super) const MOST_POINTS: usize = 400;
/// Two points stand for all of a bucket: the fullest, and the last, whose memory is held until the next bucket.
pub(super) const BUCKETS: u64 = MOST_POINTS as u64 / 2;

/// Makes a timeline.
pub(super) struct Timeline {
    points: Vec<MemoryPoint>,
    from: i64,
    /// How long a bucket is; none where every point can be kept.
    width: Option<u64>,
    bucket: Option<Bucket>,
}

/// The bucket that points are put in.
struct Bucket {
    number: u64,
    /// The first of its fullest points, and what it comes to.
    fullest: MemoryPoint,
    total: u64,
    last: MemoryPoint,
}

impl Timeline {
    /// One over some stretches of time; none where nothing happened.
    pub(super) fn over(stretches: &[Stretch], events: &[Event]) -> Option<Timeline> {
        let from = stretches.iter().find_map(|stretch| stretch.first_moment(events))?;
        let to = stretches.iter().rev().find_map(|stretch| stretch.last_moment(events))?;
        let points: usize = stretches.iter().map(|stretch| stretch.events.len() + 1).sum();
        Some(Timeline::new(from, to, points))
    }

    /// One of at most so many points, from a moment to another.
    fn new(from: i64, to: i64, points: usize) -> Timeline {
        let width = (points > MOST_POINTS).then(|| to.abs_diff(from) / BUCKETS + 1);
        Timeline { points: Vec::new(), from, width, bucket: None }
    }

    /// Adds what was allocated at a time, which is not before that of the last one, and what it comes to.
    pub(super) fn add(&mut self, point: MemoryPoint, total: u64) {
        let Some(width) = self.width else {
            self.points.push(point);
            return;
        };
        let number = point.time_ns.abs_diff(self.from) / width;
        match &mut self.bucket {
            Some(bucket) if bucket.number == number => {
                if total > bucket.total {
                    (bucket.fullest, bucket.total) = (point, total);
                }
                bucket.last = point;
            }
            _ => {
                self.close_bucket();
                self.bucket = Some(Bucket { number, fullest: point, total, last: point });
            }
        }
    }

    fn close_bucket(&mut self) {
        let Some(Bucket { fullest, last, .. }) = self.bucket.take() else { return };
        self.points.push(fullest);
        if last != fullest {
            self.points.push(last);
        }
    }

    /// The points, by time.
    pub(super) fn finish(mut self) -> Vec<MemoryPoint> {
        self.close_bucket();
        self.points
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_traces::MemoryCategory;

    use super::*;

    fn point(time_ns: i64, bytes: u64) -> MemoryPoint {
        let mut point = MemoryPoint { time_ns, bytes: [0; MemoryCategory::ALL.len()] };
        point.bytes[time_ns.unsigned_abs() as usize % MemoryCategory::ALL.len()] = bytes;
        point
    }

    fn thinned(points: &[MemoryPoint]) -> Vec<MemoryPoint> {
        let (from, to) = (points[0].time_ns, points[points.len() - 1].time_ns);
        let mut timeline = Timeline::new(from, to, points.len());
        points.iter().for_each(|point| timeline.add(*point, point.total()));
        timeline.finish()
    }

    #[test]
    fn few_points_are_all_kept() {
        let points: Vec<_> = (0..400).map(|time| point(time / 7, time as u64 * 31 % 17)).collect();
        assert_eq!(thinned(&points), points);
    }

    #[test]
    fn a_spike_and_the_quiet_after_it_are_kept() {
        let mut points: Vec<_> = (0..1000).map(|time| point(time, 10)).collect();
        points.push(point(1000, 99));
        points.push(point(1001, 0));
        points.push(point(20_000, 1));
        let kept = thinned(&points);
        assert!(kept.contains(&point(1000, 99)) && kept.contains(&point(1001, 0)), "{kept:?}");
    }

    #[test]
    fn all_of_time_can_be_thinned() {
        let points: Vec<_> = [i64::MIN; 300]
            .into_iter()
            .chain([i64::MAX; 300])
            .map(|time| point(time, time.unsigned_abs() % 3))
            .collect();
        assert_eq!(thinned(&points), [points[0], points[300]]);
    }

    proptest! {
        #[test]
        fn each_bucket_keeps_its_fullest_and_its_last_point(
            steps in prop::collection::vec((0..50_i64, 0..1000_u64), 401..1500),
            begin in -1_000_000..1_000_000_i64,
        ) {
            let mut time = begin - steps[0].0;
            let points: Vec<_> = steps.iter().map(|(step, bytes)| { time += step; point(time, *bytes) }).collect();
            let kept = thinned(&points);
            prop_assert!(kept.len() <= MOST_POINTS);
            prop_assert!(kept.is_sorted_by_key(|point| point.time_ns));
            let width = (time - begin) / BUCKETS as i64 + 1;
            for bucket in points.chunk_by(|one, two| (one.time_ns - begin) / width == (two.time_ns - begin) / width) {
                let most = bucket.iter().map(MemoryPoint::total).max();
                let fullest = bucket.iter().find(|point| Some(point.total()) == most).unwrap();
                prop_assert!(kept.contains(fullest) && kept.contains(&bucket[bucket.len() - 1]));
            }
            prop_assert!(kept.iter().all(|point| points.contains(point)));
        }
    }
}
