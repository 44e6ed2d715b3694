//! Kernels that are far from what their device can do.

use stepscope_plan::{NumberType, text};
use stepscope_traces::{Family, KernelKind};

use super::{
    Check, Found,
    time::{LEAST_WIN, all_time, has_no_bf16, is_amd, is_gpu, is_xla, per_step, windows, worth},
};
use crate::figures::{Analysis, Cause, FamilyFigures, KernelFigures};

/// Kernels that multiply reach more than this share of their peak, if nothing is wrong.
const FAST: f64 = 0.5;

/// A family whose kernels are far from the peak, if that is worth telling.
fn slow(analysis: &Analysis, family: Family) -> Option<(&FamilyFigures, f64, Found)> {
    let figures = analysis.families.iter().find(|figures| figures.family == family && is_gpu(analysis))?;
    let reached = figures.peak_share.filter(|share| *share < FAST)?;
    let cause = Cause::Kernels { family };
    let lost = (figures.total_ns as f64 * (1.0 - reached)) as i64 / windows(analysis);
    worth(analysis, &[cause], lost)?;
    let share = lost as f64 / analysis.step_ns()?.max(lost) as f64;
    Some((figures, reached, Found { share, lost_ns: Some(lost), causes: vec![cause], ..Found::default() }))
}

/// Attention far from its roof.
pub(super) struct SlowAttention;

impl Check for SlowAttention {
    const KIND: &'static str = "slow-attention";

    fn find(analysis: &Analysis) -> Option<Found> {
        let (figures, reached, found) = slow(analysis, Family::Attention)?;
        let names = analysis.kernels.iter().filter(|kernel| kernel.family == Family::Attention);
        let most = names.max_by_key(|kernel| kernel.total_ns).map(|kernel| kernel.name.as_str());
        const FUSED: [&str; 4] = ["flash", "cudnn", "fmha", "sdpa"];
        let is_fused = most.is_some_and(|name| FUSED.iter().any(|fused| name.to_lowercase().contains(fused)));
        let most = most.map(|name| format!("; most of it is {}", text::shortened(name, 60)));
        Some(Found {
            summary: format!("attention reaches {} of peak", text::rough_percent(reached)),
            evidence: format!("{} of kernel time{}", text::rough_percent(figures.share), most.unwrap_or_default()),
            advice: match is_fused {
                true => {
                    "give each call more to do: longer sequences, larger micro-batches, fewer and wider heads; compare \
                         other kernels of the device; causal masks count their whole square here"
                        .into()
                }
                false => format!(
                    "use the newest attention kernel of the device ({}), in bf16, with head dimensions that it is made \
                     for; causal masks count their whole square here",
                    if is_amd(analysis) { "AITER, Composable Kernel" } else { "FlashAttention 3, cuDNN" }
                ),
            },
            ..found
        })
    }
}

/// Attention whose softmax is a kernel by itself.
pub(super) struct UnfusedAttention;

impl Check for UnfusedAttention {
    const KIND: &'static str = "unfused-attention";

    fn find(analysis: &Analysis) -> Option<Found> {
        let kernels = analysis.kernels.iter().filter(|kernel| KernelKind::of(&kernel.name).is_softmax);
        let kernels: Vec<&KernelFigures> = kernels.collect();
        let time: i64 = kernels.iter().map(|kernel| kernel.total_ns).sum();
        let share = time as f64 / all_time(analysis).max(1) as f64;
        let count: u64 = kernels.iter().map(|kernel| kernel.count).sum();
        (share >= LEAST_WIN).then(|| Found {
            share,
            summary: format!("the softmax of attention alone takes {} of the time", text::rough_percent(share)),
            evidence: format!(
                "{}{}, besides the products, masks and copies of whole attention matrices that it stands between",
                text::counted(count / windows(analysis) as u64, "kernel"),
                per_step(analysis)
            ),
            advice: match is_xla(analysis) {
                true => {
                    "compute attention in one kernel: `jax.nn.dot_product_attention(implementation=\"cudnn\")`".into()
                }
                false => "compute attention in one kernel: `F.scaled_dot_product_attention` or FlashAttention \
                          (`attn_implementation=\"sdpa\"` in transformers), without weights or masks that rule it out"
                    .into(),
            },
            lost_ns: Some(time / windows(analysis)),
            ..Found::default()
        })
    }
}

/// Matrix products far from their roof.
pub(super) struct SlowMatmul;

impl Check for SlowMatmul {
    const KIND: &'static str = "slow-matmul";

    fn find(analysis: &Analysis) -> Option<Found> {
        let (figures, reached, found) = slow(analysis, Family::Matmul)?;
        // What takes little of the time is not why.
        let time: i64 = analysis.gemms.iter().map(|gemm| gemm.kernels.total_ns).sum();
        let odd = analysis.gemms.iter().find(|gemm| !gemm.misaligned.is_empty() && 5 * gemm.kernels.total_ns > time);
        let worst =
            analysis.gemms.iter().filter(|gemm| gemm.kernels.rates.peak_share.is_some_and(|share| share < FAST));
        let worst = worst.max_by_key(|gemm| gemm.kernels.total_ns).map(|gemm| {
            let share = gemm.kernels.rates.peak_share.unwrap_or(0.0);
            format!("; {} × {} × {} reaches {}", gemm.m, gemm.n, gemm.k, text::rough_percent(share))
        });
        Some(Found {
            summary: format!("matrix products reach {} of peak", text::rough_percent(reached)),
            evidence: format!("{} of kernel time{}", text::rough_percent(figures.share), worst.unwrap_or_default()),
            advice: match odd {
                Some(gemm) => format!(
                    "pad sizes to multiples of 16 bytes ({} × {} × {} is not, in {}), or use larger micro-batches",
                    gemm.m,
                    gemm.n,
                    gemm.k,
                    text::listed(&gemm.misaligned)
                ),
                None => {
                    "use larger micro-batches or longer sequences, so that each product fills the device; fuse small \
                         products"
                        .into()
                }
            },
            ..found
        })
    }
}

/// Products of 32-bit numbers that tensor cores could take.
pub(super) struct WithoutTensorCores;

impl Check for WithoutTensorCores {
    const KIND: &'static str = "fp32-matmul";

    fn find(analysis: &Analysis) -> Option<Found> {
        let by_shape = analysis.gemms.iter().filter(|gemm| gemm.without_tensor_cores);
        let by_shape: i64 = by_shape.map(|gemm| gemm.kernels.total_ns).sum();
        let by_name = analysis.kernels.iter().filter(|kernel| kernel.precision == Some(NumberType::Fp32));
        let of = |family: Family| -> i64 {
            by_name.clone().filter(|kernel| kernel.family == family).map(|kernel| kernel.total_ns).sum()
        };
        let (products, convolutions) = (by_shape.max(of(Family::Matmul)), of(Family::Convolution));
        let time = products + convolutions;
        let all: i64 = analysis.counted.iter().map(|time| time.partition.span_ns).sum();
        let share = time as f64 / all.max(1) as f64;
        (is_gpu(analysis) && share >= LEAST_WIN).then(|| Found {
            share,
            summary: format!(
                "{} in fp32 without tensor cores: {} of the time",
                if products >= convolutions { "matrix products" } else { "convolutions" },
                text::rough_percent(share)
            ),
            evidence: format!("{}{}", text::duration(time / windows(analysis)), per_step(analysis)),
            advice: match has_no_bf16(analysis) {
                true => "compute in fp16 (autocast with a gradient scaler)".into(),
                false => format!(
                    "compute in bf16 (autocast), or let fp32 use TF32: `{}`",
                    match products >= convolutions {
                        true => "torch.set_float32_matmul_precision(\"high\")",
                        false => "torch.backends.cudnn.allow_tf32 = True",
                    }
                ),
            },
            lost_ns: Some(time / windows(analysis)),
            ..Found::default()
        })
    }
}

/// An optimizer of many small kernels.
pub(super) struct UnfusedOptimizer;

impl Check for UnfusedOptimizer {
    const KIND: &'static str = "unfused-optimizer";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_KERNELS: u64 = 200;
        const LONGEST_NS: i64 = 20_000;
        let figures = analysis.families.iter().find(|figures| figures.family == Family::Optimizer)?;
        let steps = windows(analysis);
        let (kernels, mean) = (figures.count / steps as u64, figures.total_ns / figures.count.max(1) as i64);
        let idle: i64 = analysis
            .operators
            .iter()
            .filter(|operator| is_optimizer(operator.operator.as_deref()))
            .map(|operator| operator.kernels.idle_before_ns)
            .sum();
        let all: i64 = analysis.counted.iter().map(|time| time.partition.span_ns).sum();
        let share = (figures.total_ns + idle) as f64 / all.max(1) as f64;
        (kernels >= LEAST_KERNELS && mean <= LONGEST_NS && share >= LEAST_WIN).then(|| Found {
            share,
            summary: format!("the optimizer launches {} small kernels per step", text::count(kernels)),
            evidence: format!(
                "{} each, and {} of the time with the gaps before them",
                text::duration(mean),
                text::rough_percent(share)
            ),
            advice:
                "use a fused optimizer (`AdamW(fused=True)`) or one that handles all tensors at once (`foreach=True`)"
                    .into(),
            lost_ns: Some((figures.total_ns + idle) / steps),
            ..Found::default()
        })
    }
}

/// So many small kernels that the device spends its time on them.
pub(super) struct SmallKernels;

impl Check for SmallKernels {
    const KIND: &'static str = "small-kernels";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_KERNELS: f64 = 0.5;
        const LEAST_TIME: f64 = 0.15;
        let durations = analysis.kernel_durations.as_ref().filter(|_| is_gpu(analysis))?;
        let share = durations.small_time_share * durations.total_ns as f64 / all_time(analysis).max(1) as f64;
        let kernels = durations.count / windows(analysis) as u64;
        (durations.small_share >= LEAST_KERNELS && share >= LEAST_TIME).then(|| Found {
            share,
            summary: format!("kernels of less than 10 µs take {} of the time", text::rough_percent(share)),
            evidence: format!(
                "{} of {}{} are that short",
                text::rough_percent(durations.small_share),
                text::counted(kernels, "compute kernel"),
                per_step(analysis)
            ),
            advice: format!(
                "fuse them ({}), or give each more to do: larger micro-batches",
                match is_xla(analysis) {
                    true => "`jax.jit` around more of the program",
                    false => "`torch.compile`, fused norms, activations and optimizers",
                }
            ),
            ..Found::default()
        })
    }
}

/// Whether an operator is a step of an optimizer.
fn is_optimizer(operator: Option<&str>) -> bool {
    operator.is_some_and(|operator| operator.starts_with("Optimizer.step"))
}
