//! Findings about time.

use stepscope_plan::Axis;

use super::{Check, Found, percent};
use crate::{analysis::Analysis, family::Family};

/// Of all ranks' time, a figure's share.
fn share(analysis: &Analysis, of: impl Fn(&crate::Partition) -> i64) -> Option<f64> {
    let sum =
        |of: &dyn Fn(&crate::Partition) -> i64| analysis.ranks.iter().map(|rank| of(&rank.partition)).sum::<i64>();
    let whole = sum(&|partition| partition.span_ns);
    (whole > 0).then(|| sum(&of) as f64 / whole as f64)
}

/// Replicas' communication that the backward pass could hide, and does not.
pub(super) struct ExposedCommunication;

impl Check for ExposedCommunication {
    const KIND: &'static str = "exposed-communication";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.05;
        const MOST_OVERLAP: f64 = 0.5;
        let data =
            analysis.ranks.iter().flat_map(|rank| &rank.breakdown.axes).filter(|axis| axis.axis == Some(Axis::Data));
        let (mut communication, mut overlapped, mut exposed) = (0, 0, 0);
        for axis in data {
            communication += axis.communication_ns;
            overlapped += axis.overlapped_ns;
            exposed += axis.exposed_ns;
        }
        let whole: i64 = analysis.ranks.iter().map(|rank| rank.partition.span_ns).sum();
        if communication == 0 || whole == 0 {
            return None;
        }
        let (share, overlap) = (exposed as f64 / whole as f64, overlapped as f64 / communication as f64);
        (share >= LEAST_SHARE && overlap <= MOST_OVERLAP).then(|| Found {
            share,
            what: format!("{} of the time waits for replicas to exchange gradients or parameters", percent(share)),
            evidence: format!("only {} of that communication is hidden behind compute", percent(overlap)),
            advice: "reduce gradients in buckets beside the backward pass, or accumulate more micro-batches a step"
                .into(),
        })
    }
}

/// One rank that the others wait for.
pub(super) struct SlowRank;

impl Check for SlowRank {
    const KIND: &'static str = "slow-rank";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.05;
        const LEAST_BLAME: f64 = 0.6;
        let all: i64 = analysis.stragglers.iter().map(|rank| rank.caused_wait_ns).sum();
        let worst = analysis.stragglers.iter().max_by_key(|rank| rank.caused_wait_ns)?;
        let whole: i64 = analysis.ranks.iter().map(|rank| rank.partition.span_ns).sum();
        if all == 0 || whole == 0 || analysis.stragglers.len() < 2 {
            return None;
        }
        let (share, blame) = (worst.caused_wait_ns as f64 / whole as f64, worst.caused_wait_ns as f64 / all as f64);
        (share >= LEAST_SHARE && blame >= LEAST_BLAME).then(|| Found {
            share,
            what: format!("rank {} makes the others wait", worst.rank.0),
            evidence: format!(
                "{} of all waiting in collectives was for it, {} of all ranks' time",
                percent(blame),
                percent(share)
            ),
            advice: format!(
                "look at rank {}: its host, its input, its clock speed, or work that only it does",
                worst.rank.0
            ),
        })
    }
}

/// A device that waits for its host.
pub(super) struct HostBound;

impl Check for HostBound {
    const KIND: &'static str = "host-bound";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.15;
        // A stage of a pipeline waits for other stages, not for its host.
        if analysis.pipeline.is_some() {
            return None;
        }
        let share = share(analysis, |partition| partition.idle_ns)?;
        let kernels: u64 = analysis.ranks.iter().map(|rank| rank.kernel_count).sum();
        let idle: i64 = analysis.ranks.iter().map(|rank| rank.partition.idle_ns).sum();
        (share >= LEAST_SHARE && kernels > 0).then(|| Found {
            share,
            what: format!("nothing runs for {} of the time", percent(share)),
            evidence: format!("{:.0} µs without any work for each kernel", idle as f64 / kernels as f64 / 1e3),
            advice: "launch fewer, larger kernels, or remove what makes the host wait: input, synchronisation, Python"
                .into(),
        })
    }
}

/// A run whose matrix products are fast, and which is slow.
pub(super) struct LowUtilisation;

impl Check for LowUtilisation {
    const KIND: &'static str = "low-utilisation";

    fn find(analysis: &Analysis) -> Option<Found> {
        const MOST_OF_RATE: f64 = 0.5;
        let mfu = analysis.mfu.as_ref()?.value?;
        let matmul = analysis.families.iter().find(|family| family.family == Family::Matmul)?;
        let rate = matmul.peak_share?;
        (mfu < MOST_OF_RATE * rate).then(|| Found {
            share: 1.0 - mfu / rate,
            what: format!("MFU is {}, and matrix products alone reach {}", percent(mfu), percent(rate)),
            evidence: format!("matrix products take {} of all kernels' time", percent(matmul.share)),
            advice: "the time goes elsewhere: see the step's parts and the kernels that are no matrix products".into(),
        })
    }
}
