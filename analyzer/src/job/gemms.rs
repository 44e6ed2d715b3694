//! Matrix products by shape: how fast each is, and what keeps it from being faster.
//!
//! For users, it is defined in `docs/src/metrics.md#matrix-products`.
//!
//! A device computes as many tiles of the result at once as it has multiprocessors. W of such waves take as long as ⌈W⌉:
//! the last one may be nearly empty. BLAS is called with columns for rows, so a tile's rows are columns here.

use std::collections::BTreeMap;

use stepscope_plan::{Device, NumberType};
use stepscope_traces::{Gemm, GemmFeatures, Transposes};

use crate::{
    figures::GemmFigures,
    job::launched::{JobKernel, JobKernels},
};

/// Tensor cores take matrices in pieces of so many bytes.
const PIECE_BYTES: u64 = 16;

/// What makes matrix products alike.
type Product = (Gemm, Option<NumberType>, Option<Transposes>);

/// Matrix products by shape, numbers and layout, the most time first. `device`: what computes them, if it is known.
pub(crate) fn gemms(job: &JobKernels<'_>, device: Option<&Device>) -> Vec<GemmFigures> {
    let mut by_shape: BTreeMap<Product, Vec<&JobKernel<'_>>> = BTreeMap::new();
    for kernel in &job.kernels {
        if let Some(gemm) = kernel.gemm {
            let layout = kernel.kind.gemm.and_then(|features| features.transposes);
            by_shape.entry((gemm, kernel.numbers, layout)).or_default().push(kernel);
        }
    }
    let mut gemms: Vec<GemmFigures> = by_shape
        .into_iter()
        .filter_map(|((gemm, precision, layout), kernels)| {
            let longest = kernels.iter().max_by_key(|kernel| kernel.sum.total_ns)?;
            let features = longest.kind.gemm.unwrap_or_default();
            let waves = device.and_then(|device| waves(gemm, &features, &longest.key.name, device.multiprocessors));
            Some(GemmFigures {
                batch: gemm.batch,
                m: gemm.m,
                n: gemm.n,
                k: gemm.k,
                precision,
                layout,
                kernels: job.together(kernels.iter().copied()),
                kernel: longest.key.name.clone(),
                tile: features.tile,
                waves,
                wave_efficiency: waves.map(|waves| waves / waves.ceil()),
                misaligned: misaligned(gemm, precision),
                without_tensor_cores: features.without_tensor_cores,
            })
        })
        .collect();
    gemms.sort_by_key(|gemm| (-gemm.kernels.total_ns, gemm.m, gemm.n, gemm.k));
    gemms
}

/// How many times the device is filled; none, where it is not known how the sum is split.
fn waves(gemm: Gemm, features: &GemmFeatures, kernel: &str, multiprocessors: u32) -> Option<f64> {
    let [rows, columns] = features.tile?.map(u64::from);
    let is_split =
        ["splitk", "stream_k", "streamk", "segment_k_on"].iter().any(|word| kernel.to_lowercase().contains(word));
    let tiles = gemm.n.div_ceil(rows).checked_mul(gemm.m.div_ceil(columns))?.checked_mul(gemm.batch)?;
    (!is_split && tiles > 0).then(|| tiles as f64 / f64::from(multiprocessors.max(1)))
}

/// The sides that are no multiple of what tensor cores take at once.
fn misaligned(gemm: Gemm, numbers: Option<NumberType>) -> Vec<&'static str> {
    let bytes = match numbers {
        Some(NumberType::Fp64) => 8,
        Some(NumberType::Fp32 | NumberType::Tf32) => 4,
        Some(NumberType::Fp8 | NumberType::Int8) => 1,
        _ => 2,
    };
    let sides = [("m", gemm.m), ("n", gemm.n), ("k", gemm.k)];
    sides.into_iter().filter(|(_, side)| side * bytes % PIECE_BYTES != 0).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_wave_may_be_nearly_empty() {
        let features = GemmFeatures { tile: Some([128, 256]), ..GemmFeatures::default() };
        let gemm = Gemm { batch: 1, m: 4096, n: 4096, k: 8 };
        // 32 × 16 tiles on 132 multiprocessors.
        assert_eq!(waves(gemm, &features, "gemm", 132), Some(512.0 / 132.0));
        assert_eq!(waves(gemm, &features, "gemm_splitK", 132), None);
        assert_eq!(waves(gemm, &GemmFeatures::default(), "gemm", 132), None);
    }

    #[test]
    fn sides_are_aligned_by_their_bytes() {
        let gemm = |m, n, k| Gemm { batch: 1, m, n, k };
        assert_eq!(misaligned(gemm(8, 12, 50257), Some(NumberType::Bf16)), ["n", "k"]);
        assert_eq!(misaligned(gemm(8, 12, 16), Some(NumberType::Tf32)), [""; 0]);
        assert_eq!(misaligned(gemm(16, 8, 16), Some(NumberType::Fp8)), ["n"]);
    }
}
