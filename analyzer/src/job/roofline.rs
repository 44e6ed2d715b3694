//! What lets a kernel be no faster: what its device computes, or what its memory gives.
//!
//! A kernel that does I FLOPs for each byte it reads and writes can do min(peak, I × memory bandwidth) FLOP/s. Where both
//! are the same is the ridge: kernels left of it wait for memory, those right of it for arithmetic.

use stepscope_plan::{self as plan, NumberType};
use stepscope_traces::Device;

use crate::{
    figures::{Bound, KernelRates, Roofline},
    rank::kernel_sums::KernelSum,
};

/// Of so much of the time of a group it must be known what it does.
const LEAST_KNOWN: f64 = 0.9;

/// The roofline of a device; none where its peak is not known. A peak that somebody `said` counts for all numbers.
pub(crate) fn roofline(said: Option<f64>, device: Option<&Device>) -> Option<Roofline> {
    let known = device.and_then(|device| plan::Device::named(&device.name).ok());
    let memory_bandwidth = known.map(|device| device.memory_bandwidth);
    let peak_flops = said.or(device.and_then(|device| device.peak_flops))?;
    Some(Roofline {
        peak_flops,
        peaks: known.filter(|_| said.is_none()).map(|device| device.peaks),
        memory_bandwidth,
        ridge: memory_bandwidth.map(|bandwidth| peak_flops / bandwidth),
    })
}

/// The peak for products of some numbers.
pub(crate) fn peak(roofline: &Roofline, numbers: Option<NumberType>) -> f64 {
    let of_numbers = roofline.peaks.zip(numbers).and_then(|(peaks, numbers)| peaks.of_numbers(numbers));
    of_numbers.unwrap_or(roofline.peak_flops)
}

/// What kernels do in their time, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WorkRate {
    flops_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    /// FLOPs for each byte.
    intensity: Option<f64>,
    /// Whether they compute nothing that counts.
    without_flops: bool,
}

impl WorkRate {
    /// Of kernels of one name: those of which something is known speak for the others.
    pub(crate) fn of_name(sum: &KernelSum) -> WorkRate {
        let rate = |amount: f64, time_ns: i64| (time_ns > 0).then(|| amount / (time_ns as f64 / 1e9));
        let (flops, bytes) = sum.both;
        WorkRate {
            flops_per_second: rate(sum.flops, sum.flops_ns),
            bytes_per_second: rate(sum.bytes, sum.bytes_ns),
            intensity: (bytes > 0.0).then(|| flops / bytes),
            without_flops: sum.flops_ns == 0 && sum.bytes_ns > 0,
        }
    }

    /// Of different kernels, over all of their time: something is known only if it is of nearly all of them.
    /// `counted_ns`: the time of those of which it is known what they compute, be it nothing.
    pub(crate) fn of_group(sum: &KernelSum, counted_ns: i64) -> WorkRate {
        let enough = |known_ns: i64| known_ns > 0 && known_ns as f64 >= LEAST_KNOWN * sum.total_ns as f64;
        let rate =
            |amount: f64, known_ns: i64| (enough(known_ns) && amount > 0.0).then(|| amount / (known_ns as f64 / 1e9));
        // The bytes of an operator are those of the kernel that has its FLOPs.
        let bytes_ns = sum.bytes_ns + sum.counted_ns - sum.flops_ns;
        let (flops_per_second, bytes_per_second) = (rate(sum.flops, counted_ns), rate(sum.bytes, bytes_ns));
        WorkRate {
            flops_per_second,
            bytes_per_second,
            intensity: flops_per_second.zip(bytes_per_second).map(|(flops, bytes)| flops / bytes),
            without_flops: enough(counted_ns) && sum.flops == 0.0,
        }
    }
}

/// How fast kernels are whose roof is this peak, and how near to it: by their FLOP/s where they wait for arithmetic, by their
/// bytes a second where they wait for memory. What has bytes and no FLOPs at all waits for memory. Where they do not compute,
/// nothing limits them that is known.
pub(crate) fn rates(work: WorkRate, computes: bool, peak: Option<f64>, roofline: Option<&Roofline>) -> KernelRates {
    let WorkRate { flops_per_second: flops, bytes_per_second: bytes, intensity, without_flops } = work;
    let bandwidth = roofline.and_then(|roofline| roofline.memory_bandwidth);
    let ridge = peak.zip(bandwidth).map(|(peak, bandwidth)| peak / bandwidth);
    let zero = (without_flops && bytes.is_some()).then_some(0.0);
    let bound = intensity.or(zero).zip(ridge).filter(|_| computes);
    let bound = bound.map(|(intensity, ridge)| if intensity < ridge { Bound::Memory } else { Bound::Compute });
    // What comes faster than memory gives it was in the cache, which has a roof that nobody wrote down.
    let of_bandwidth = bytes.zip(bandwidth).map(|(rate, most)| rate / most);
    let in_cache = bound == Some(Bound::Memory) && of_bandwidth.is_some_and(|share| share > 1.0);
    let bound = bound.filter(|_| !in_cache);
    let peak_share = flops.zip(peak).map(|(flops, peak)| flops / peak);
    KernelRates {
        flops_per_second: flops,
        peak_share,
        bytes_per_second: bytes,
        arithmetic_intensity: intensity,
        bound,
        roof_share: bound.and_then(|bound| match bound {
            Bound::Compute => peak_share,
            Bound::Memory => of_bandwidth,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, peak: Option<f64>) -> Device {
        Device { name: name.into(), memory_bytes: None, peak_flops: peak }
    }

    /// A second of kernels with these FLOPs and bytes.
    fn sum(flops: f64, bytes: f64) -> KernelSum {
        let second = |amount: f64| if amount > 0.0 { 1_000_000_000 } else { 0 };
        let both = if flops > 0.0 && bytes > 0.0 { (flops, bytes) } else { (0.0, 0.0) };
        KernelSum { flops, flops_ns: second(flops), bytes, bytes_ns: second(bytes), both, ..KernelSum::default() }
    }

    fn rates_of(sum: &KernelSum, computes: bool, numbers: Option<NumberType>, line: Option<&Roofline>) -> KernelRates {
        rates(WorkRate::of_name(sum), computes, line.map(|line| peak(line, numbers)), line)
    }

    #[test]
    fn a_group_has_the_rates_of_all_of_its_time() {
        // A product of a second, and half a second of kernels that compute nothing.
        let product = KernelSum { total_ns: 1_000_000_000, counted_ns: 1_000_000_000, ..sum(300e12, 3e12) };
        let mut group = product;
        group.add(&KernelSum { total_ns: 500_000_000, ..KernelSum::default() });
        let rate = WorkRate::of_group(&group, 1_500_000_000);
        assert_eq!(
            (rate.flops_per_second, rate.bytes_per_second),
            (Some(200e12), None),
            "the bytes of a third are not known"
        );
        assert_eq!(WorkRate::of_group(&group, 1_000_000_000), WorkRate::default(), "nor is what they compute");
        assert_eq!(WorkRate::of_group(&product, 1_000_000_000).intensity, Some(100.0));
    }

    #[test]
    fn a_ridge_is_where_arithmetic_and_memory_take_as_long() {
        let roofline = roofline(Some(960e12), Some(&device("NVIDIA H200", None))).unwrap();
        assert_eq!(roofline.ridge, Some(200.0));
        let rates = |flops, bytes| rates_of(&sum(flops, bytes), true, None, Some(&roofline));
        let compute = rates(480e12, 1e12);
        assert_eq!((compute.bound, compute.roof_share), (Some(Bound::Compute), Some(0.5)));
        let memory = rates(120e12, 1.2e12);
        assert_eq!((memory.bound, memory.roof_share), (Some(Bound::Memory), Some(0.25)));
        assert_eq!(
            (rates(480e12, 0.0).bound, rates(480e12, 0.0).peak_share),
            (None, Some(0.5)),
            "its bytes are not known"
        );
        assert_eq!(rates(0.0, 2.4e12).roof_share, Some(0.5), "without FLOPs it waits for memory");
        let cached = rates(0.0, 9.6e12);
        assert_eq!((cached.bound, cached.roof_share, cached.bytes_per_second), (None, None, Some(9.6e12)));
    }

    #[test]
    fn copies_cross_a_link() {
        let roofline = roofline(Some(960e12), Some(&device("NVIDIA H200", None))).unwrap();
        assert_eq!(rates_of(&sum(0.0, 1e12), false, None, Some(&roofline)).bound, None);
    }

    #[test]
    fn numbers_have_peaks_of_their_own() {
        let h200 = device("NVIDIA H200", Some(989.4e12));
        let share = |said, numbers| {
            rates_of(&sum(33.45e12, 0.0), true, numbers, roofline(said, Some(&h200)).as_ref()).peak_share
        };
        let near = |share: Option<f64>, expected: f64| (share.unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near(share(None, Some(NumberType::Fp32)), 0.5));
        assert!(near(share(None, None), 33.45 / 989.4));
        assert!(near(share(Some(66.9e12), Some(NumberType::Bf16)), 0.5), "somebody said what counts");
    }

    #[test]
    fn what_is_not_known_of_a_device_is_not_guessed() {
        let roofline = roofline(Some(1e12), Some(&device("a CPU", None))).unwrap();
        assert_eq!((roofline.memory_bandwidth, roofline.ridge), (None, None));
        assert_eq!(rates_of(&sum(1.0, 1.0), true, None, Some(&roofline)).bound, None);
        assert_eq!(super::roofline(None, Some(&device("NVIDIA H200", None))), None);
    }
}
