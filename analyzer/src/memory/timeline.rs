//! Memory over time in a few points, of which none that stands out is lost.

use super::{MemoryPoint, stretch::Stretch};

/// How many points there are at most.
pub(super) const MOST_POINTS: usize = 600;
/// Three points stand for all of a bucket: the first, the fullest, and the last, whose memory is held until the next one.
pub(super) const BUCKETS: usize = MOST_POINTS / 3;

/// Makes a timeline.
pub(super) struct Timeline {
    points: Vec<MemoryPoint>,
    /// How many points a bucket takes; none where every point can be kept. Not how long it is: a step in which much
    /// happens may be short beside the wait before it.
    width: Option<usize>,
    added: usize,
    bucket: Option<Bucket>,
}

/// The bucket that points are put in.
struct Bucket {
    number: usize,
    first: MemoryPoint,
    /// The first of its fullest points, and what it comes to.
    fullest: MemoryPoint,
    total: u64,
    last: MemoryPoint,
}

impl Timeline {
    /// One over some stretches of time.
    pub(super) fn over(stretches: &[Stretch]) -> Timeline {
        Timeline::new(stretches.iter().map(|stretch| stretch.events.len() + 1).sum())
    }

    /// One of so many points, before they are thinned.
    fn new(points: usize) -> Timeline {
        let width = (points > MOST_POINTS).then(|| points.div_ceil(BUCKETS));
        Timeline { points: Vec::new(), width, added: 0, bucket: None }
    }

    /// Adds what was allocated at a time, which is not before that of the last one, and what it comes to.
    pub(super) fn add(&mut self, point: MemoryPoint, total: u64) {
        let Some(width) = self.width else {
            self.points.push(point);
            return;
        };
        let number = self.added / width;
        self.added += 1;
        match &mut self.bucket {
            Some(bucket) if bucket.number == number => {
                if total > bucket.total {
                    (bucket.fullest, bucket.total) = (point, total);
                }
                bucket.last = point;
            }
            _ => {
                self.close_bucket();
                self.bucket = Some(Bucket { number, first: point, fullest: point, total, last: point });
            }
        }
    }

    fn close_bucket(&mut self) {
        let Some(Bucket { first, fullest, last, .. }) = self.bucket.take() else { return };
        self.points.push(first);
        self.points.extend(Some(fullest).filter(|fullest| *fullest != first));
        self.points.extend(Some(last).filter(|last| *last != fullest));
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
        let mut timeline = Timeline::new(points.len());
        points.iter().for_each(|point| timeline.add(*point, point.total()));
        timeline.finish()
    }

    #[test]
    fn few_points_are_all_kept() {
        let points: Vec<_> = (0..600).map(|time| point(time / 7, time as u64 * 31 % 17)).collect();
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
    fn a_short_step_after_a_long_wait_is_not_lost() {
        let wait = (0..10).map(|time| point(time, 5));
        let step = (0..990).map(|time| point(1_000_000 + time, (time as u64 / 10) % 50));
        let points: Vec<_> = wait.chain(step).collect();
        let kept = thinned(&points);
        assert!(kept.iter().filter(|point| point.time_ns >= 1_000_000).count() > 190, "{}", kept.len());
    }

    proptest! {
        #[test]
        fn each_bucket_keeps_its_first_its_fullest_and_its_last_point(
            steps in prop::collection::vec((0..50_i64, 0..1000_u64), 601..1500),
        ) {
            let mut time = 0;
            let points: Vec<_> = steps.iter().map(|(step, bytes)| { time += step; point(time, *bytes) }).collect();
            let kept = thinned(&points);
            prop_assert!(kept.len() <= MOST_POINTS);
            prop_assert!(kept.is_sorted_by_key(|point| point.time_ns));
            for bucket in points.chunks(points.len().div_ceil(BUCKETS)) {
                let most = bucket.iter().map(MemoryPoint::total).max();
                let fullest = bucket.iter().find(|point| Some(point.total()) == most).unwrap();
                prop_assert!([&bucket[0], fullest, &bucket[bucket.len() - 1]].iter().all(|point| kept.contains(point)));
            }
            prop_assert!(kept.iter().all(|point| points.contains(point)));
        }
    }
}
