//! Findings about time.

use stepscope_plan::{Axis, text};
use stepscope_traces::{Family, Phase};

use super::{Check, Found};
use crate::figures::{Analysis, AxisShare, Partition, StepFigures};

/// A figure's share of the time of all ranks in the counted steps.
fn share(analysis: &Analysis, of: impl Fn(&Partition) -> i64) -> Option<f64> {
    let whole = all_time(analysis);
    (whole > 0).then(|| analysis.counted.iter().map(|time| of(&time.partition)).sum::<i64>() as f64 / whole as f64)
}

/// The time of all ranks in the counted steps.
fn all_time(analysis: &Analysis) -> i64 {
    analysis.counted.iter().map(|time| time.partition.span_ns).sum()
}

const RECORDING: &str = "the recording";

/// What shares are of.
fn whole(analysis: &Analysis) -> &'static str {
    if analysis.step_time.is_none() || analysis.window.whole { RECORDING } else { "the step" }
}

/// Communication that could overlap with compute, and does not. In a pipeline it is part of the bubble.
pub(super) struct ExposedCommunication;

impl Check for ExposedCommunication {
    const KIND: &'static str = "exposed-communication";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.05;
        const MOST_OVERLAP: f64 = 0.5;
        const NO_OVERLAP: f64 = 0.005;
        let axes = AxisShare::sum(analysis.counted.iter().flat_map(|time| &time.breakdown.axes));
        let hidden_by_others = |share: &&AxisShare| {
            share.axis.is_some_and(|axis| axis.is_of_replicas() || matches!(axis, Axis::Tensor | Axis::Sequence))
        };
        let most = axes.iter().filter(hidden_by_others).max_by_key(|share| share.exposed_ns)?;
        let (share, overlap) = (most.exposed_ns as f64 / all_time(analysis).max(1) as f64, most.overlap());
        let (what, advice) = match most.axis {
            Some(Axis::Tensor | Axis::Sequence) => (
                "exposed tensor-parallel all-reduce",
                "use fewer tensor-parallel ranks, or overlap the all-reduce with compute",
            ),
            _ => (
                "exposed data-parallel communication",
                "reduce gradients in buckets during the backward pass, or accumulate more micro-batches per step",
            ),
        };
        let windows: u64 = analysis.counted.iter().map(|time| time.windows).sum();
        let per = if whole(analysis) == RECORDING { "" } else { " per step" };
        let time = format!("{}{per}", text::duration(most.communication_ns / windows.max(1) as i64));
        (share >= LEAST_SHARE && overlap <= MOST_OVERLAP).then(|| Found {
            share,
            what: format!("{what}: {} of {}", text::rough_percent(share), whole(analysis)),
            evidence: match overlap {
                overlap if overlap < NO_OVERLAP => format!("{time}, and none of it overlaps with compute"),
                overlap => {
                    format!("{time}, and only {} of it overlaps with compute", text::rough_percent(overlap))
                }
            },
            advice: advice.into(),
        })
    }
}

/// A step that took far longer than the others.
pub(super) struct LongStep;

impl Check for LongStep {
    const KIND: &'static str = "long-step";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.05;
        const LEAST_RATIO: f64 = 3.0;
        let time = analysis.step_time.as_ref()?;
        let longest = analysis.counted_steps().max_by_key(|step| step.duration_ns)?;
        let of_its_rank: i64 =
            analysis.counted_steps().filter(|step| step.rank == longest.rank).map(|step| step.duration_ns).sum();
        let share = (longest.duration_ns - time.median_ns).max(0) as f64 / of_its_rank.max(1) as f64;
        let ratio = longest.duration_ns as f64 / time.median_ns.max(1) as f64;
        (share >= LEAST_SHARE && ratio >= LEAST_RATIO).then(|| Found {
            share,
            what: format!("step {} took {ratio:.0} times as long as the median step{}", longest.step, because(longest)),
            evidence: format!(
                "{} on rank {}; the excess is {} of all step time, and lowers the mean throughput and MFU",
                text::duration(longest.duration_ns),
                longest.rank,
                text::rough_percent(share)
            ),
            advice: match longest.includes.last() {
                Some(Phase::Checkpoint) => "save less often, in parts on all ranks, or asynchronously".into(),
                Some(_) => "evaluate less often, or on fewer samples".into(),
                None => "check that step for a checkpoint, an evaluation, late input data, or a stalled host".into(),
            },
        })
    }
}

/// What a step includes besides training, as a reason.
fn because(step: &StepFigures) -> String {
    let does = step.includes.iter().map(|phase| match phase {
        Phase::Checkpoint => "saves a checkpoint",
        _ => "evaluates",
    });
    let does: Vec<&str> = does.collect();
    if does.is_empty() { String::new() } else { format!(": it {}", text::listed(&does)) }
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
        let whole = all_time(analysis);
        if all == 0 || whole == 0 || analysis.stragglers.len() < 2 {
            return None;
        }
        // What it waited itself it did not cause, and waiting that compute hides costs nothing.
        let net = (worst.caused_wait_ns - worst.wait_ns).max(0) as f64 / whole as f64;
        let share = net.min(share(analysis, |partition| partition.exposed_communication_ns)?);
        let blame = worst.caused_wait_ns as f64 / all as f64;
        (share >= LEAST_SHARE && blame >= LEAST_BLAME).then(|| Found {
            share,
            what: format!("rank {} is a straggler: the other ranks wait for it", worst.rank.0),
            evidence: format!(
                "it causes {} of all waiting in collectives, about {} of the time of all ranks",
                text::rough_percent(blame),
                text::rough_percent(share)
            ),
            advice: format!(
                "check rank {}: its host, its input data, its clock speed, or work that only it does",
                worst.rank.0
            ),
        })
    }
}

/// What work runs on, in a word: devices of known memory, and those of other tools' traces, are GPUs.
fn device(analysis: &Analysis) -> &'static str {
    let is_gpu = analysis.run.device.as_ref().is_none_or(|device| device.memory_bytes.is_some());
    if is_gpu { "GPU" } else { "device" }
}

/// A device that waits for its host.
pub(super) struct HostBound;

impl Check for HostBound {
    const KIND: &'static str = "host-bound";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.15;
        // A stage of a pipeline waits for other stages, not for its host; and who shares a device, for the others on it.
        if analysis.pipeline.is_some() || analysis.run.ranks_on_a_device.is_some() {
            return None;
        }
        let share = share(analysis, |partition| partition.idle_ns)?;
        let kernels: u64 = analysis.counted.iter().map(|time| time.kernel_count).sum();
        let idle: i64 = analysis.counted.iter().map(|time| time.partition.idle_ns).sum();
        let per_kernel = format!("{} of idle time per kernel", text::duration(idle / kernels.max(1) as i64));
        let (evidence, advice) = match waiting_for_data(analysis).filter(|waiting| *waiting >= LEAST_SHARE) {
            Some(waiting) => (
                format!("{per_kernel}; the program waits for data {} of its time", text::rough_percent(waiting)),
                "load data in more workers (`num_workers`), and earlier (`prefetch_factor`, `pin_memory`)",
            ),
            None => (
                per_kernel,
                "launch fewer, larger kernels, or remove what delays the host: input data, synchronization, Python",
            ),
        };
        (share >= LEAST_SHARE && kernels > 0).then(|| Found {
            share,
            what: format!("the {} is idle {} of {}", device(analysis), text::rough_percent(share), whole(analysis)),
            evidence,
            advice: advice.into(),
        })
    }
}

/// The share of its time that the program waits for data, where it says so.
fn waiting_for_data(analysis: &Analysis) -> Option<f64> {
    let ranks = analysis.host.iter().flat_map(|host| &host.ranks);
    let known = ranks.filter_map(|rank| Some((rank.data_ns?, rank.time_ns)));
    let (data, time) = known.reduce(|one, other| (one.0 + other.0, one.1 + other.1))?;
    (time > 0).then(|| data as f64 / time as f64)
}

/// A run that is slow although its matrix multiplications are fast.
pub(super) struct LowUtilisation;

impl Check for LowUtilisation {
    const KIND: &'static str = "low-utilisation";

    fn find(analysis: &Analysis) -> Option<Found> {
        const MOST_OF_RATE: f64 = 0.5;
        const MOST_IDLE: f64 = 0.5;
        let mfu = analysis.mfu.as_ref()?.value?;
        let matmul = analysis.families.iter().find(|family| family.family == Family::Matmul)?;
        let rate = matmul.peak_share?;
        // Idle time already explains it.
        if HostBound::find(analysis).is_some_and(|idle| idle.share > MOST_IDLE) {
            return None;
        }
        // Faster than the peak means that the peak is wrong.
        (mfu < MOST_OF_RATE * rate && rate <= 1.0).then(|| Found {
            share: 1.0 - mfu / rate,
            what: format!(
                "MFU is {}, although matrix multiplications reach {} of peak",
                text::rough_percent(mfu),
                text::rough_percent(rate)
            ),
            evidence: format!("matrix multiplications are {} of kernel time", text::rough_percent(matmul.share)),
            advice: "look at idle time, exposed communication, and kernels other than matrix multiplications".into(),
        })
    }
}
