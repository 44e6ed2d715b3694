//! Devices that wait for their host, by why they do; and copies that nothing hides.

use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{
    Check, Found,
    ranks::SlowRank,
    time::{device, is_amd, is_compiled, is_core, is_ours, is_xla, per_step, share, whole, windows, worth},
};
use crate::figures::{Analysis, Cause, CountedTime, IdleReason};

/// Idle time of a rank for some reasons, in the steps that count.
fn idle_of_rank(time: &CountedTime, reasons: &[IdleReason]) -> i64 {
    time.idle.iter().filter(|idle| reasons.contains(&idle.reason)).map(|idle| idle.time_ns).sum()
}

/// The same of all ranks.
fn idle(analysis: &Analysis, reasons: &[IdleReason]) -> i64 {
    analysis.counted.iter().map(|time| idle_of_rank(time, reasons)).sum()
}

/// The rank that is idle most for some reasons, if the others are much less, and the share of its time.
fn most_idle(analysis: &Analysis, reasons: &[IdleReason]) -> Option<(Rank, f64)> {
    const TIMES_THE_MEAN: f64 = 1.5;
    let share = |time: &CountedTime| idle_of_rank(time, reasons) as f64 / time.partition.span_ns.max(1) as f64;
    let mean = analysis.counted.iter().map(share).sum::<f64>() / analysis.counted.len().max(1) as f64;
    let most = analysis.counted.iter().max_by(|one, other| share(one).total_cmp(&share(other)))?;
    Some((most.rank, share(most))).filter(|(_, share)| *share >= TIMES_THE_MEAN * mean)
}

/// What is found of a device that is idle for some reasons, if that is worth telling; what it says is still to be said.
fn idle_for(analysis: &Analysis, reasons: &[IdleReason]) -> Option<Found> {
    let causes: Vec<Cause> = reasons.iter().map(|reason| Cause::Idle { reason: *reason }).collect();
    let all = idle(analysis, reasons);
    let lost = all / windows(analysis);
    worth(analysis, &causes, lost)?;
    if is_of_slow_rank(analysis, reasons, all) {
        return None;
    }
    let span: i64 = analysis.counted.iter().map(|time| time.partition.span_ns).sum();
    Some(Found { share: all as f64 / span.max(1) as f64, lost_ns: Some(lost), causes, ..Found::default() })
}

/// What is found of a device that something leaves idle for a reason, and when that is.
fn left_idle(analysis: &Analysis, what: &str, reason: IdleReason, when: &str, advice: &str) -> Option<Found> {
    let found = idle_for(analysis, &[reason])?;
    let (share, time) = (text::rough_percent(found.share), text::duration(found.lost_ns.unwrap_or(0)));
    Some(Found {
        summary: format!("{what} leaves the {} idle {share} of {}", device(analysis), whole(analysis)),
        evidence: format!("{time}{} {when}", per_step(analysis)),
        advice: advice.into(),
        ..found
    })
}

/// Whether most of the idle time for some reasons is that of the one rank that the others wait for: that is the finding, then.
fn is_of_slow_rank(analysis: &Analysis, reasons: &[IdleReason], all: i64) -> bool {
    const MOST: f64 = 0.6;
    let Some(slow) = SlowRank::find(analysis) else { return false };
    let time = analysis.counted.iter().find(|time| slow.ranks.contains(&time.rank));
    let own = time.map_or(0, |time| idle_of_rank(time, reasons));
    own as f64 >= MOST * all as f64
}

/// Ranks that share a device, and wait for each other there.
pub(super) struct SharedDevice;

impl Check for SharedDevice {
    const KIND: &'static str = "shared-device";

    fn find(analysis: &Analysis) -> Option<Found> {
        let ranks = analysis.run.ranks_on_a_device?;
        let found = idle_for(analysis, &[IdleReason::Launches, IdleReason::Unknown, IdleReason::Queue])?;
        Some(Found {
            summary: format!(
                "{ranks} ranks share a {}: each is idle {} of {}",
                device(analysis),
                text::rough_percent(found.share),
                whole(analysis)
            ),
            evidence: format!(
                "{}{} in which nothing of a rank runs; what of it is the time of the others, nobody can tell",
                text::duration(found.lost_ns.unwrap_or(0)),
                per_step(analysis)
            ),
            advice: "give each rank a GPU of its own; figures of one rank are not those of a whole GPU".into(),
            // What a rank would do alone was not replayed.
            causes: Vec::new(),
            ..found
        })
    }
}

/// A device for which the host launches too slowly.
pub(super) struct HostBound;

impl Check for HostBound {
    const KIND: &'static str = "host-bound";

    fn find(analysis: &Analysis) -> Option<Found> {
        // Who shares a device waits for the others on it, and so does who shares a core with its host.
        if analysis.run.ranks_on_a_device.is_some() || is_core(analysis) {
            return None;
        }
        let reasons = [IdleReason::Launches, IdleReason::Unknown];
        let found = idle_for(analysis, &reasons)?;
        let most = most_idle(analysis, &reasons);
        let kernels: u64 = analysis.counted.iter().map(|time| time.kernel_count).sum();
        let all = idle(analysis, &reasons);
        let is_known = 2 * idle(analysis, &[IdleReason::Launches]) > all;
        let (why, known) = match is_known {
            true => {
                (": the host launches too slowly", "what runs next was launched in it, after everything else was over")
            }
            false => ("", "what the host did meanwhile was not recorded"),
        };
        (kernels > 0).then(|| Found {
            summary: format!(
                "the {} is idle {} of {}{why}",
                device(analysis),
                text::rough_percent(found.share),
                whole(analysis)
            ),
            evidence: format!(
                "{} of idle time per kernel{}; {known}",
                text::duration(all / kernels.max(1) as i64),
                most.map_or_else(String::new, |(rank, share)| {
                    format!(", rank {rank} most ({} of its time)", text::rough_percent(share))
                })
            ),
            ranks: most.into_iter().map(|(rank, _)| rank).collect(),
            advice: format!(
                "launch fewer, larger kernels ({}), or remove what delays the host: input data, synchronization, Python, \
                 other processes",
                match is_xla(analysis) {
                    true => "`jax.jit` around the whole step, `jax.lax.scan` over layers, larger batches",
                    false if is_compiled(analysis) => "`torch.compile(mode=\"reduce-overhead\")`, larger micro-batches",
                    false if is_amd(analysis) => "`torch.compile`, HIP graphs, fused operators, larger micro-batches",
                    false => "`torch.compile`, CUDA graphs, fused operators, larger micro-batches",
                }
            ),
            ..found
        })
    }
}

/// A host that waits for the device, and then has nothing launched.
pub(super) struct SyncPoints;

impl Check for SyncPoints {
    const KIND: &'static str = "sync-points";

    fn find(analysis: &Analysis) -> Option<Found> {
        let advice = match is_xla(analysis) {
            true => {
                "do not read results in every step: `block_until_ready()`, `float(loss)`, `np.asarray`; log every so \
                     many steps"
            }
            false => {
                "do not read results in every step: `.item()`, `.cpu()`, `print(loss)`, `if tensor`, \
                      `torch.cuda.synchronize()`; log every so many steps, and copy with `non_blocking=True`"
            }
        };
        let when = "after the host had waited for the device";
        left_idle(analysis, "synchronization", IdleReason::Synchronization, when, advice)
    }
}

/// A program that waits for data.
pub(super) struct DataLoading;

impl Check for DataLoading {
    const KIND: &'static str = "data-loading";

    fn find(analysis: &Analysis) -> Option<Found> {
        let advice = match is_xla(analysis) {
            true => {
                "load data in more workers and put it on the device ahead of its step, or prepare it before training"
            }
            false => {
                "load data in more workers (`num_workers`), earlier (`prefetch_factor`, `pin_memory`, \
                      `persistent_workers`), or prepare it before training"
            }
        };
        if let Some(found) = idle_for(analysis, &[IdleReason::Input]) {
            return Some(Found {
                summary: format!(
                    "the {} waits for data {} of {}",
                    device(analysis),
                    text::rough_percent(found.share),
                    whole(analysis)
                ),
                evidence: format!("{}{}", text::duration(found.lost_ns.unwrap_or(0)), per_step(analysis)),
                advice: advice.into(),
                ..found
            });
        }
        // Without a device, the host is all there is.
        const LEAST_SHARE: f64 = 0.1;
        let nothing_ran = analysis.counted.iter().all(|time| time.kernel_count == 0);
        let share = waiting_for_data(analysis).filter(|share| nothing_ran && *share >= LEAST_SHARE)?;
        let waited: i64 =
            analysis.host.iter().flat_map(|host| &host.ranks).map(|rank| rank.time_ns).sum::<i64>() / windows(analysis);
        Some(Found {
            share,
            summary: format!("the program waits for data {} of its time", text::rough_percent(share)),
            evidence: format!(
                "{}{} by its annotations; no activity of a device was recorded",
                text::duration((share * waited as f64) as i64),
                per_step(analysis)
            ),
            advice: advice.into(),
            ..Found::default()
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

/// An allocator that takes memory from the device, and gives it back, again and again.
pub(super) struct Allocation;

impl Check for Allocation {
    const KIND: &'static str = "allocator-thrashing";

    fn find(analysis: &Analysis) -> Option<Found> {
        let found = idle_for(analysis, &[IdleReason::Allocation])?;
        Some(Found {
            summary: format!(
                "the {} is idle {} of {} while memory is allocated",
                device(analysis),
                text::rough_percent(found.share),
                whole(analysis)
            ),
            evidence: format!(
                "{}{} in calls that take memory of the device or give it back, and until the host was ahead again",
                text::duration(found.lost_ns.unwrap_or(0)),
                per_step(analysis)
            ),
            advice:
                "leave memory to the caching allocator: no `empty_cache()` in the loop, less memory than the device \
                     has, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`"
                    .into(),
            ..found
        })
    }
}

/// Calls that should only launch something, and take long.
pub(super) struct SlowLaunches;

impl Check for SlowLaunches {
    const KIND: &'static str = "slow-launches";

    fn find(analysis: &Analysis) -> Option<Found> {
        let advice = "look at later steps, if kernels are loaded or compiled in these, which are their first ones \
                      (`CUDA_MODULE_LOADING=EAGER` loads them at the start); or find what holds the driver then: another \
                      thread that copies or takes memory";
        let when = "in calls that load code, or launch something and take 1 ms or more";
        left_idle(analysis, "blocking in launch calls", IdleReason::SlowLaunch, when, advice)
    }
}

/// What was launched in time, and starts late.
pub(super) struct LateStarts;

impl Check for LateStarts {
    const KIND: &'static str = "late-starts";

    fn find(analysis: &Analysis) -> Option<Found> {
        // What stages wait for is said as their bubble; of a device that several share nobody knows.
        if analysis.pipeline.is_some() || analysis.run.ranks_on_a_device.is_some() || is_core(analysis) {
            return None;
        }
        let when = "in which what runs next was launched, and did not start";
        let advice = "look in the exported timeline what precedes the gaps: an event of another stream, a graph that is \
                      uploaded with its first launch (`cudaGraphUpload` beforehand), another process on the device; many \
                      small kernels leave some microseconds each, and fewer, larger ones less";
        left_idle(analysis, "work that starts later than it could", IdleReason::Queue, when, advice)
    }
}

/// Checkpoints, for which training waits.
pub(super) struct Checkpointing;

impl Check for Checkpointing {
    const KIND: &'static str = "checkpointing";

    fn find(analysis: &Analysis) -> Option<Found> {
        let advice = match is_ours(analysis) {
            true => "save less often (--save-every)",
            false => {
                "save less often, or in the background from a copy in host memory \
                      (`torch.distributed.checkpoint.async_save`)"
            }
        };
        let when = "in which a checkpoint is saved or loaded";
        left_idle(analysis, "checkpointing", IdleReason::Checkpoint, when, advice)
    }
}

/// A recorder that holds up what it records.
pub(super) struct RecordingCost;

impl Check for RecordingCost {
    const KIND: &'static str = "recording-cost";

    fn find(analysis: &Analysis) -> Option<Found> {
        let advice = "let some steps pass as warm-up (`schedule(wait=…, warmup=…)`) and profile without stacks, shapes and \
                      memory, or record with `stepscope record`";
        let when = "in which it takes or flushes buffers; the job alone is faster than these figures";
        left_idle(analysis, "the profiler", IdleReason::Recording, when, advice)
    }
}

/// Copies that nothing hides.
pub(super) struct ExposedCopies;

impl Check for ExposedCopies {
    const KIND: &'static str = "exposed-copies";

    fn find(analysis: &Analysis) -> Option<Found> {
        let all: i64 = analysis.counted.iter().map(|time| time.partition.exposed_copy_ns).sum();
        let lost = all / windows(analysis);
        worth(analysis, &[Cause::Copies], lost)?;
        let share = share(analysis, |partition| partition.exposed_copy_ns)?;
        let copies: i64 = analysis.counted.iter().map(|time| time.partition.copy_ns).sum();
        Some(Found {
            share,
            summary: format!("exposed copies: {} of {}", text::rough_percent(share), whole(analysis)),
            evidence: format!(
                "{}{} of copies and fills, of which {} overlaps with nothing",
                text::duration(copies / windows(analysis)),
                per_step(analysis),
                text::rough_percent(all as f64 / copies.max(1) as f64)
            ),
            advice: format!(
                "{}, ahead of the step that needs it; keep offloaded state on the device if it fits",
                match is_xla(analysis) {
                    true => "put data on the device (`jax.device_put`, `prefetch_to_device`)",
                    false => "copy from pinned memory (`pin_memory=True`, `non_blocking=True`) on a stream of its own",
                }
            ),
            lost_ns: Some(lost),
            causes: vec![Cause::Copies],
            ..Found::default()
        })
    }
}
