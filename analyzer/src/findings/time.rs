//! What findings about time have in common.

use stepscope_traces::{Device, RunSource};

use crate::figures::{Analysis, Cause, Partition};

/// What would win less of a step is not told.
pub(super) const LEAST_WIN: f64 = 0.04;

/// A figure's share of the time of all ranks in the counted steps.
pub(super) fn share(analysis: &Analysis, of: impl Fn(&Partition) -> i64) -> Option<f64> {
    let whole = all_time(analysis);
    (whole > 0).then(|| analysis.counted.iter().map(|time| of(&time.partition)).sum::<i64>() as f64 / whole as f64)
}

/// The time of all ranks in the counted steps.
pub(super) fn all_time(analysis: &Analysis) -> i64 {
    analysis.counted.iter().map(|time| time.partition.span_ns).sum()
}

/// How many steps of all ranks count.
pub(super) fn windows(analysis: &Analysis) -> i64 {
    analysis.counted.iter().map(|time| time.windows).sum::<u64>().max(1) as i64
}

const RECORDING: &str = "the recording";

/// What shares are of.
pub(super) fn whole(analysis: &Analysis) -> &'static str {
    if analysis.step_time.is_none() || analysis.window.whole { RECORDING } else { "the step" }
}

/// What times are of, behind them.
pub(super) fn per_step(analysis: &Analysis) -> &'static str {
    if whole(analysis) == RECORDING { "" } else { " per step" }
}

/// How much shorter a step would be without some causes, each of which is replayed alone; none, where none was.
pub(super) fn win(analysis: &Analysis, causes: &[Cause]) -> Option<i64> {
    let (what_if, step) = (analysis.what_if.as_ref()?, analysis.step_ns()?);
    let wins = causes.iter().filter_map(|cause| Some(what_if.win_of(what_if.without(*cause)?, step)));
    wins.reduce(|one, other| one + other).map(|win| win.min(step))
}

/// The same as a share of the step, if that is worth telling. Where nothing was replayed, `lost` is what it may win.
pub(super) fn worth(analysis: &Analysis, causes: &[Cause], lost: i64) -> Option<f64> {
    let step = analysis.step_ns()?;
    let win = match analysis.what_if {
        Some(_) => win(analysis, causes)?,
        None => lost,
    };
    Some(win as f64 / step as f64).filter(|share| *share >= LEAST_WIN)
}

/// What work runs on, in a word: devices of known memory, and those of other tools' traces, are GPUs.
pub(super) fn device(analysis: &Analysis) -> &'static str {
    if is_gpu(analysis) { "GPU" } else { "device" }
}

/// Whether work runs on GPUs, as far as is known.
pub(super) fn is_gpu(analysis: &Analysis) -> bool {
    !is_core(analysis) && analysis.run.device.as_ref().is_none_or(|device| device.memory_bytes.is_some())
}

/// Whether work runs on cores of a CPU, which the host has, too.
pub(super) fn is_core(analysis: &Analysis) -> bool {
    analysis.run.device.as_ref().is_some_and(Device::is_core)
}

/// Whether the device is one of AMD's.
pub(super) fn is_amd(analysis: &Analysis) -> bool {
    let name = analysis.run.device.as_ref().map_or("", |device| device.name.as_str());
    name.contains("AMD") || name.contains("Instinct") || analysis.run.source == RunSource::Rocprof
}

/// Whether XLA compiled the program: it is of JAX or TensorFlow.
pub(super) fn is_xla(analysis: &Analysis) -> bool {
    analysis.run.source == RunSource::Xplane
}

/// Whether `torch.compile` made some of its kernels.
pub(super) fn is_compiled(analysis: &Analysis) -> bool {
    const MADE: [&str; 3] = ["triton_poi_fused", "triton_red_fused", "triton_per_fused"];
    analysis.kernels.iter().any(|kernel| MADE.iter().any(|made| kernel.name.starts_with(made)))
}

/// Whether the device has tensor cores for fp16 alone.
pub(super) fn has_no_bf16(analysis: &Analysis) -> bool {
    const OLD: [&str; 4] = ["V100", "T4", "RTX 20", "Quadro RTX"];
    let name = analysis.run.device.as_ref().map_or("", |device| device.name.as_str());
    OLD.iter().any(|old| name.contains(old))
}

/// Whether our own trainer ran, whose options are ours to name.
pub(super) fn is_ours(analysis: &Analysis) -> bool {
    analysis.run.layout.is_some_and(|layout| layout.said.is_some())
}
