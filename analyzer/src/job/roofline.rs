//! What lets a kernel be no faster: what its device computes, or what its memory gives.
//!
//! A kernel that does I FLOPs for each byte it reads and writes can do min(peak, I × memory bandwidth) FLOP/s. Where both
//! are the same is the ridge: kernels left of it wait for memory, those right of it for arithmetic.

use stepscope_plan::{self as plan, NumberType};
use stepscope_traces::{Device, Family};

use crate::{
    figures::{Bound, KernelRates, Roofline},
    rank::kernel_sums::KernelSum,
};

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
fn peak(roofline: &Roofline, numbers: Option<NumberType>) -> f64 {
    let of_numbers = roofline.peaks.zip(numbers).and_then(|(peaks, numbers)| peaks.of_numbers(numbers));
    of_numbers.unwrap_or(roofline.peak_flops)
}

/// How fast kernels are that multiply some numbers, and how near to their roof: by their FLOP/s where they wait for
/// arithmetic, by their bytes a second where they wait for memory. What has bytes and no FLOPs at all waits for memory.
pub(crate) fn rates(
    sum: &KernelSum,
    family: Option<Family>,
    numbers: Option<NumberType>,
    roofline: Option<&Roofline>,
) -> KernelRates {
    let (flops, bytes) = (sum.flops_per_second(), sum.bytes_per_second());
    let computes = !matches!(family, Some(Family::Communication | Family::Copy));
    let without_flops = (sum.flops_ns == 0 && sum.bytes_ns > 0).then_some(0.0);
    let intensity = sum.arithmetic_intensity();
    let peak = roofline.map(|roofline| peak(roofline, numbers));
    let bandwidth = roofline.and_then(|roofline| roofline.memory_bandwidth);
    let ridge = peak.zip(bandwidth).map(|(peak, bandwidth)| peak / bandwidth);
    let bound = intensity.or(without_flops).zip(ridge).filter(|_| computes);
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

    #[test]
    fn a_ridge_is_where_arithmetic_and_memory_take_as_long() {
        let roofline = roofline(Some(960e12), Some(&device("NVIDIA H200", None))).unwrap();
        assert_eq!(roofline.ridge, Some(200.0));
        let rates = |flops, bytes| rates(&sum(flops, bytes), Some(Family::Matmul), None, Some(&roofline));
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
        assert_eq!(rates(&sum(0.0, 1e12), Some(Family::Copy), None, Some(&roofline)).bound, None);
    }

    #[test]
    fn numbers_have_peaks_of_their_own() {
        let h200 = device("NVIDIA H200", Some(989.4e12));
        let share = |said, numbers| {
            rates(&sum(33.45e12, 0.0), Some(Family::Matmul), numbers, roofline(said, Some(&h200)).as_ref()).peak_share
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
        assert_eq!(rates(&sum(1.0, 1.0), Some(Family::Matmul), None, Some(&roofline)).bound, None);
        assert_eq!(super::roofline(None, Some(&device("NVIDIA H200", None))), None);
    }
}
