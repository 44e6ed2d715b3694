//! What a run of our trainer shows of what predictions take for granted.
//!
//! - **Matrix products and attention**: the share of the peak that they reach while they run, by their FLOPs.
//! - **Other kernels**: bytes that they read and write a second, as a share of the memory's bandwidth. Communication and copies
//!   are none of them.
//! - **Gaps**: idle time and exposed copies of a step, for each kernel that `plan` counts. Where they are more than a third of
//!   the step, the device waits for launches, and the whole step counts for them. With several ranks a device waits for others,
//!   too, so then nothing is said.
//! - **Links**: the bus bandwidth of the collectives that move most, of ranks that fit into one node.
//! - **Memory**: what a device has beside what was planned: its driver, libraries, fragmentation, and what was not foreseen.

use stepscope_plan::{Assumptions, Device, MeasuredRates, attention_by_shape, kernels_per_step};
use stepscope_traces::{Family, SpanKind};

use crate::{
    figures::{Analysis, CollectiveFigures, Partition, RankMemory},
    job::plan_score::{comparable_device, trained},
};

/// Beyond so much of a step in which nothing runs, the device waits for launches.
const LAUNCH_BOUND: f64 = 1.0 / 3.0;

/// What a run shows, and of which device; or why it shows nothing.
pub fn measured_rates(analysis: &Analysis) -> Result<(&'static Device, MeasuredRates), String> {
    let (model, layout) = trained(&analysis.run).ok_or_else(|| "it does not say its model and layout".to_owned())?;
    let device = comparable_device(&analysis.run)?;
    if analysis.step_time.is_none() || analysis.window.whole {
        return Err("no complete step was recorded".into());
    }
    let of_family = |family: Family| {
        let family = analysis.families.iter().find(|figures| figures.family == family)?;
        family.peak_share.filter(|share| possible(*share))
    };
    let (kernel_gap, launch) = match analysis.counted.as_slice() {
        [counted] => {
            let kernels = kernels_per_step(model, device, &Assumptions::of(device), &layout);
            gaps(&counted.partition, kernels * counted.windows as f64)
        }
        _ => (None, None),
    };
    Ok((
        device,
        MeasuredRates {
            compute_efficiency: of_family(Family::Matmul),
            attention_efficiency: of_family(Family::Attention)
                .map(|share| share / attention_by_shape(model, layout.attended_length()))
                .filter(|share| possible(*share)),
            memory_efficiency: memory_efficiency(analysis, device),
            kernel_gap,
            launch,
            usable_memory: usable_memory(analysis, device),
            link_bandwidth: link_bandwidth(analysis.run.world_size.into(), &analysis.collectives, device),
        },
    ))
}

fn possible(share: f64) -> bool {
    (0.001..=1.0).contains(&share)
}

fn memory_efficiency(analysis: &Analysis, device: &Device) -> Option<f64> {
    let waits_for_memory = |family: Family| {
        matches!(family, Family::Optimizer | Family::Elementwise | Family::Norm | Family::Loss | Family::Embedding)
    };
    let kernels = analysis.kernels.iter().filter(|kernel| waits_for_memory(kernel.family));
    let (bytes, time) = kernels.fold((0.0, 0.0), |(bytes, time), kernel| match kernel.rates.bytes_per_second {
        Some(rate) => (bytes + rate * kernel.total_ns as f64, time + kernel.total_ns as f64),
        None => (bytes, time),
    });
    (time > 0.0).then(|| bytes / time / device.memory_bandwidth).filter(|share| possible(*share))
}

/// Seconds between so many kernels, or seconds of a launch: whichever the device waits for.
fn gaps(time: &Partition, kernels: f64) -> (Option<f64>, Option<f64>) {
    let nothing_runs = (time.idle_ns + time.exposed_copy_ns) as f64;
    let each = |time_ns: f64| Some(time_ns / 1e9 / kernels).filter(|seconds| seconds.is_finite());
    match nothing_runs > LAUNCH_BOUND * time.span_ns as f64 {
        true => (None, each(time.span_ns as f64)),
        false => (each(nothing_runs), None),
    }
}

fn link_bandwidth(world_size: u64, collectives: &[CollectiveFigures], device: &Device) -> Option<f64> {
    let in_a_node = world_size <= Assumptions::of(device).gpus_per_node;
    let rings = [SpanKind::AllReduce, SpanKind::AllGather, SpanKind::ReduceScatter];
    let collectives = collectives.iter().filter(|collective| rings.contains(&collective.operation));
    let most = collectives.max_by_key(|collective| collective.bytes)?;
    most.by_size.last()?.bus_bandwidth.filter(|rate| in_a_node && *rate >= 1.0)
}

fn usable_memory(analysis: &Analysis, device: &Device) -> Option<f64> {
    let memory = RankMemory::fullest(analysis.memory.iter())?;
    let ledger = memory.ledger.as_ref()?;
    let beside = ledger.device_used_bytes as f64 - memory.predicted?.total() as f64;
    let there = analysis.run.device.as_ref()?.memory_bytes? as f64;
    Some((there - beside) / device.memory_bytes as f64).filter(|share| possible(*share))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::figures::MessageSize;

    #[test]
    fn a_device_waits_for_launches_or_between_kernels() {
        let time =
            |idle_ns| Partition { span_ns: 1_000_000, idle_ns, exposed_copy_ns: 100_000, ..Partition::default() };
        let near = |seconds: Option<f64>, expected: f64| (seconds.unwrap() / expected - 1.0).abs() < 1e-12;
        let (gap, launch) = gaps(&time(200_000), 100.0);
        assert!(near(gap, 3e-6) && launch.is_none(), "{gap:?} {launch:?}");
        let (gap, launch) = gaps(&time(400_000), 100.0);
        assert!(near(launch, 1e-5) && gap.is_none(), "{gap:?} {launch:?}");
        assert_eq!(gaps(&time(400_000), 0.0), (None, None));
    }

    #[test]
    fn a_link_is_as_fast_as_the_largest_messages_of_what_moves_most() {
        let of_size = |bytes, rate| MessageSize {
            count: 1,
            bytes,
            own_ns: 1,
            algorithm_bandwidth: None,
            bus_bandwidth: Some(rate),
        };
        let collective = |operation, bytes, by_size| CollectiveFigures {
            operation,
            axis: None,
            group_size: Some(8),
            count: 1,
            bytes: Some(bytes),
            busy_ns: 1,
            exposed_ns: 1,
            own_ns: Some(1),
            waiting_ns: Some(0),
            algorithm_bandwidth: None,
            bus_bandwidth: None,
            by_size,
            by_step: BTreeMap::new(),
        };
        let collectives = [
            collective(SpanKind::AllReduce, 1000, vec![of_size(10, 1e9), of_size(900, 300e9)]),
            collective(SpanKind::AllGather, 500, vec![of_size(500, 200e9)]),
            collective(SpanKind::Send, 5000, vec![of_size(5000, 100e9)]),
        ];
        let device = Device::named("h200").unwrap();
        assert_eq!(link_bandwidth(8, &collectives, device), Some(300e9));
        assert_eq!(link_bandwidth(16, &collectives, device), None, "some of it went over a network");
        assert_eq!(link_bandwidth(8, &[], device), None);
    }
}
