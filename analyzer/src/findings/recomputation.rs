//! Recomputation that memory does not need, as far as is known.

use stepscope_plan::text;

use super::{
    Check, Found,
    time::{all_time, is_ours, per_step, windows, worth},
};
use crate::figures::{Analysis, Cause, RankMemory};

/// Activations that are computed again though there is room for them, or nobody knows whether there is.
pub(super) struct Recomputation;

impl Check for Recomputation {
    const KIND: &'static str = "recomputation";

    fn find(analysis: &Analysis) -> Option<Found> {
        const MOST_FULL: f64 = 0.6;
        let all: i64 = analysis.counted.iter().map(|time| time.recomputation_ns).sum();
        let lost = all / windows(analysis);
        worth(analysis, &[Cause::Recomputation], lost)?;
        let share = all as f64 / all_time(analysis).max(1) as f64;
        let device = analysis.run.device.as_ref().and_then(|device| device.memory_bytes);
        let used = RankMemory::fullest(analysis.memory.iter()).map(|memory| memory.peak_bytes).filter(|used| *used > 0);
        let (room, known) = match used.zip(device) {
            Some((used, device)) if (used as f64) < MOST_FULL * device as f64 => {
                (", and memory has room", format!("at most {} of {} are used", text::bytes(used), text::bytes(device)))
            }
            // It is needed, or may be.
            Some(_) => return None,
            None => ("", "how full memory is, is not known".into()),
        };
        let advice = match is_ours(analysis) {
            true => "recompute less: `--recompute selective` or `none`, or fill the memory with larger micro-batches",
            false => "if there is room, checkpoint fewer layers, or only attention, or use larger micro-batches",
        };
        Some(Found {
            share,
            summary: format!("recomputation takes {} of the step{room}", text::rough_percent(share)),
            evidence: format!("{}{} of kernels that run again; {known}", text::duration(lost), per_step(analysis)),
            advice: advice.into(),
            lost_ns: Some(lost),
            causes: vec![Cause::Recomputation],
            ..Found::default()
        })
    }
}
