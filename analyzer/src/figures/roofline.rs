//! What lets a kernel be no faster.

use serde::Serialize;
use stepscope_plan::Peaks;

use crate::stored::one_of;

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// FLOP/s, dense.
    pub peak_flops: f64,
    /// The peaks for all kinds of numbers, by the device's data sheet; none, where somebody said what counts.
    pub peaks: Option<Peaks>,
    /// Bytes a second of its memory, by its data sheet; none of a device that is not known.
    pub memory_bandwidth: Option<f64>,
    /// FLOPs a byte from which on arithmetic is what is waited for.
    pub ridge: Option<f64>,
}

/// What a kernel waits for when it runs as fast as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory.
    Memory,
}

one_of!(Bound: [Bound::Compute, Bound::Memory]);
