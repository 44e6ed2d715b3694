//! Memory over time in a few points, of which none that stands out is lost.

use stepscope_traces::MemoryCategory;

use crate::figures::MemoryPoint;

/// How many points there are at most.
pub(super) const MOST_POINTS: usize = 600;
/// Three points stand for all of a bucket: the first, the fullest, and the last, whose memory is held until the next one.
pub(super) const BUCKETS: usize = MOST_POINTS / 3;

/// Makes a timeline of any number of points, which need not be known before: whenever there are too many buckets, each two
/// become one. A bucket is so many points, and not so long: a step in which much happens may be short beside the wait
/// before it.
#[derive(Clone, Default)]
pub(super) struct Timeline<const PARTS: usize = { MemoryCategory::ALL.len() }> {
    /// All points, as long as they are few.
    points: Vec<MemoryPoint<PARTS>>,
    buckets: Vec<Bucket<PARTS>>,
    /// How many points a bucket takes; none as long as every point is kept.
    width: Option<usize>,
}

/// Neighbours that three of them stand for.
#[derive(Clone)]
struct Bucket<const PARTS: usize> {
    count: usize,
    first: MemoryPoint<PARTS>,
    /// The first of its fullest points, and what it comes to.
    fullest: MemoryPoint<PARTS>,
    total: u64,
    last: MemoryPoint<PARTS>,
}

impl<const PARTS: usize> Timeline<PARTS> {
    /// Adds what was allocated at a time, which is not before that of the last one, and what it comes to.
    pub(super) fn add(&mut self, point: MemoryPoint<PARTS>, total: u64) {
        match self.width {
            None if self.points.len() < MOST_POINTS => self.points.push(point),
            None => {
                // Half of the buckets there may be, so that there is room for as many again.
                self.width = Some(MOST_POINTS.div_ceil(BUCKETS / 2));
                for point in std::mem::take(&mut self.points) {
                    self.put(Bucket::of(point, point.total()));
                }
                self.put(Bucket::of(point, total));
            }
            Some(_) => self.put(Bucket::of(point, total)),
        }
    }

    /// Puts a point where it belongs.
    fn put(&mut self, point: Bucket<PARTS>) {
        let (width, is_full) = (self.width.unwrap_or(1), self.buckets.len() == BUCKETS);
        match self.buckets.last_mut() {
            Some(bucket) if bucket.count < width => bucket.join(&point),
            Some(_) if is_full => {
                self.width = Some(2 * width);
                self.buckets = self.buckets.chunks(2).map(Bucket::of_neighbours).collect();
                self.buckets.push(point);
            }
            _ => self.buckets.push(point),
        }
    }

    /// The points, by time.
    pub(super) fn finish(self) -> Vec<MemoryPoint<PARTS>> {
        let mut points = self.points;
        for Bucket { first, fullest, last, .. } in self.buckets {
            points.push(first);
            points.extend(Some(fullest).filter(|fullest| *fullest != first));
            points.extend(Some(last).filter(|last| *last != fullest));
        }
        points
    }
}

impl<const PARTS: usize> Bucket<PARTS> {
    fn of(point: MemoryPoint<PARTS>, total: u64) -> Bucket<PARTS> {
        Bucket { count: 1, first: point, fullest: point, total, last: point }
    }

    fn of_neighbours(neighbours: &[Bucket<PARTS>]) -> Bucket<PARTS> {
        let mut all = neighbours[0].clone();
        neighbours[1..].iter().for_each(|next| all.join(next));
        all
    }

    /// Takes what comes after it.
    fn join(&mut self, next: &Bucket<PARTS>) {
        self.count += next.count;
        if next.total > self.total {
            (self.fullest, self.total) = (next.fullest, next.total);
        }
        self.last = next.last;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(time_ns: i64, bytes: u64) -> MemoryPoint {
        let mut point = MemoryPoint { time_ns, bytes: [0; MemoryCategory::ALL.len()] };
        point.bytes[time_ns.unsigned_abs() as usize % MemoryCategory::ALL.len()] = bytes;
        point
    }

    fn thinned(points: &[MemoryPoint]) -> Vec<MemoryPoint> {
        let mut timeline = Timeline::default();
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
            steps in prop::collection::vec((0..50_i64, 0..1000_u64), 601..6000),
        ) {
            let mut time = 0;
            let points: Vec<_> = steps.iter().map(|(step, bytes)| { time += step; point(time, *bytes) }).collect();
            let kept = thinned(&points);
            prop_assert!(kept.len() <= MOST_POINTS);
            prop_assert!(kept.is_sorted_by_key(|point| point.time_ns));
            // Six points a bucket, and twice as many each time that there are more than two hundred of them.
            let mut width = 6;
            while points.len() > width * BUCKETS {
                width *= 2;
            }
            for bucket in points.chunks(width) {
                let most = bucket.iter().map(MemoryPoint::total).max();
                let fullest = bucket.iter().find(|point| Some(point.total()) == most).unwrap();
                prop_assert!([&bucket[0], fullest, &bucket[bucket.len() - 1]].iter().all(|point| kept.contains(point)));
            }
            prop_assert!(kept.iter().all(|point| points.contains(point)));
        }
    }
}
