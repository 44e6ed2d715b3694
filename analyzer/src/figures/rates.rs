//! How fast kernels are, and how near to their limit.

use serde::Serialize;

use super::roofline::Bound;
use crate::stored::fields;

/// How fast some kernels are. What is not known is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KernelRates {
    /// FLOP/s while they ran, of those whose FLOPs are known.
    pub flops_per_second: Option<f64>,
    /// Those, as a share of a device's peak for the numbers that they multiply.
    pub peak_share: Option<f64>,
    /// Bytes of memory they read and wrote a second, of those whose bytes are known; not of communication.
    pub bytes_per_second: Option<f64>,
    /// FLOPs for each such byte, where both are known.
    pub arithmetic_intensity: Option<f64>,
    /// What they wait for when they run as fast as they can; of what computes.
    pub bound: Option<Bound>,
    /// How fast they are, as a share of what that lets through.
    pub roof_share: Option<f64>,
}

fields!(KernelRates { flops_per_second, peak_share, bytes_per_second, arithmetic_intensity, bound, roof_share });
