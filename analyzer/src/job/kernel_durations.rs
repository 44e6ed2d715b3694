//! How long compute kernels take: a job with many small ones waits for their launches.
//!
//! For users, it is defined in `docs/src/metrics.md#small-kernels`.

use crate::{
    figures::{DurationBin, KernelDurations},
    rank::kernel_sums::{DurationCounts, SMALL_NS},
};

/// How long compute kernels take; none without any.
pub(crate) fn kernel_durations(counts: &DurationCounts) -> Option<KernelDurations> {
    let below = DurationCounts::BELOW_NS.iter().copied().map(Some).chain([None]);
    let histogram: Vec<DurationBin> =
        below.zip(counts.0).map(|(below_ns, (count, total_ns))| DurationBin { below_ns, count, total_ns }).collect();
    let of = |bins: &dyn Fn(&&DurationBin) -> bool| {
        let bins = || histogram.iter().filter(bins);
        (bins().map(|bin| bin.count).sum::<u64>(), bins().map(|bin| bin.total_ns).sum::<i64>())
    };
    let (count, total_ns) = of(&|_| true);
    let (small_count, small_ns) = of(&|bin| bin.below_ns.is_some_and(|below| below <= SMALL_NS));
    (count > 0).then(|| KernelDurations {
        count,
        total_ns,
        small_share: small_count as f64 / count as f64,
        small_time_share: small_ns as f64 / total_ns.max(1) as f64,
        histogram,
    })
}
