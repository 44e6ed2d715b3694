//! What lets a kernel be no faster: what its device computes, or what its memory gives.
//!
//! A kernel that does I FLOPs for each byte it reads and writes can do min(peak, I × memory bandwidth) FLOP/s. Where both
//! are the same is the ridge: kernels left of it wait for memory, those right of it for arithmetic.

use stepscope_plan as plan;
use stepscope_traces::Device;

use crate::figures::{Bound, Roofline};

/// The roofline of a device; none where its peak is not known.
pub(crate) fn roofline(peak_flops: Option<f64>, device: Option<&Device>) -> Option<Roofline> {
    let known = device.and_then(|device| plan::Device::named(&device.name).ok());
    let memory_bandwidth = known.map(|device| device.memory_bandwidth);
    let peak_flops = peak_flops?;
    Some(Roofline { peak_flops, memory_bandwidth, ridge: memory_bandwidth.map(|bandwidth| peak_flops / bandwidth) })
}

/// What bounds a kernel of this arithmetic intensity; one without FLOPs is bound by memory.
pub(crate) fn bound(roofline: &Roofline, intensity: f64) -> Option<Bound> {
    roofline.ridge.map(|ridge| if intensity < ridge { Bound::Memory } else { Bound::Compute })
}

/// How near to the roof a kernel is: by its FLOP/s where it waits for arithmetic, by its bytes a second where it waits
/// for memory.
pub(crate) fn roof_share(roofline: &Roofline, bound: Bound, flops: Option<f64>, bytes: Option<f64>) -> Option<f64> {
    match bound {
        Bound::Compute => flops.map(|rate| rate / roofline.peak_flops),
        Bound::Memory => bytes.zip(roofline.memory_bandwidth).map(|(rate, most)| rate / most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Device {
        Device { name: name.into(), memory_bytes: None, peak_flops: None }
    }

    #[test]
    fn a_ridge_is_where_arithmetic_and_memory_take_as_long() {
        let roofline = roofline(Some(960e12), Some(&device("NVIDIA H200"))).unwrap();
        assert_eq!(roofline.ridge, Some(200.0));
        assert_eq!(bound(&roofline, 199.0), Some(Bound::Memory));
        assert_eq!(bound(&roofline, 200.0), Some(Bound::Compute));
        assert_eq!(roof_share(&roofline, Bound::Compute, Some(480e12), Some(1e12)), Some(0.5));
        assert_eq!(roof_share(&roofline, Bound::Memory, Some(480e12), Some(1.2e12)), Some(0.25));
        assert_eq!(roof_share(&roofline, Bound::Memory, Some(480e12), None), None);
    }

    #[test]
    fn what_is_not_known_of_a_device_is_not_guessed() {
        let roofline = roofline(Some(1e12), Some(&device("a CPU"))).unwrap();
        assert_eq!((roofline.memory_bandwidth, roofline.ridge), (None, None));
        assert_eq!(bound(&roofline, 1.0), None);
        assert_eq!(super::roofline(None, Some(&device("NVIDIA H200"))), None);
    }
}
