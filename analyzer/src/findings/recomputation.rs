//! Recomputation that memory does not need.

use stepscope_plan::text;

use super::{
    Check, Found,
    time::{is_ours, per_step, windows, worth},
};
use crate::figures::{Analysis, Cause, RankMemory};

/// Activations that are computed again though there is room for them.
pub(super) struct NeedlessRecomputation;

impl Check for NeedlessRecomputation {
    const KIND: &'static str = "needless-recomputation";

    fn find(analysis: &Analysis) -> Option<Found> {
        const MOST_FULL: f64 = 0.6;
        let all: i64 = analysis.counted.iter().map(|time| time.recomputation_ns).sum();
        let lost = all / windows(analysis);
        let share = worth(analysis, &[Cause::Recomputation], lost)?;
        let device = analysis.run.device.as_ref()?.memory_bytes?;
        let used = RankMemory::fullest(analysis.memory.iter()).map(|memory| memory.peak_bytes)?;
        let advice = match is_ours(analysis) {
            true => "recompute less: `--recompute selective` or `none`, or fill the memory with larger micro-batches",
            false => "checkpoint fewer layers, or only attention, or fill the memory with larger micro-batches",
        };
        (used > 0 && (used as f64) < MOST_FULL * device as f64).then(|| Found {
            share,
            summary: format!("recomputation takes {} of the step, and memory has room", text::rough_percent(share)),
            evidence: format!(
                "{}{} of kernels that run again; at most {} of {} are used",
                text::duration(lost),
                per_step(analysis),
                text::bytes(used),
                text::bytes(device)
            ),
            advice: advice.into(),
            lost_ns: Some(lost),
            causes: vec![Cause::Recomputation],
            ..Found::default()
        })
    }
}
