//! What this machine is, and what it computes at most: measured, with a large matrix product.

use std::{fs, time::Instant};

use num_traits::One;

use super::{Element, kernels};
use crate::backend::{DType, Product};

/// Rows, columns and inner width of the product: large enough to be worth packing, small enough to take little time.
const SIZE: usize = 768;
/// The best of this many tries counts: a peak is not an average.
const TRIES: usize = 25;

/// FLOP/s that one core reaches with a large matrix product of this type.
pub fn measured_peak(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => measure::<half::bf16>(),
        DType::F64 => measure::<f64>(),
        DType::F32 | DType::U32 => measure::<f32>(),
    }
}

fn measure<E: Element>() -> f64 {
    let ones = vec![E::narrow(E::Sum::one()); SIZE * SIZE];
    let mut out = vec![E::default(); SIZE * SIZE];
    let mut scratch = kernels::Scratch::default();
    let product =
        Product { rows: SIZE, columns: SIZE, inner: SIZE, transpose_a: false, transpose_b: true, accumulate: false };
    let mut best = 0.0_f64;
    for _ in 0..TRIES {
        let began = Instant::now();
        kernels::matmul(&product, &ones, &ones, &mut out, &mut scratch);
        best = best.max(2.0 * (SIZE as f64).powi(3) / began.elapsed().as_secs_f64());
    }
    best
}

/// The name of the processor.
pub(crate) fn cpu_name() -> String {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The memory of the machine, if it says so.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory("MemTotal:")
}

/// What of it can be had now.
pub fn available_memory() -> Option<u64> {
    memory("MemAvailable:")
}

fn memory(which: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(which))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(1024 * kilobytes)
}
