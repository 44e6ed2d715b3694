//! Communication that nothing hides.

use stepscope_plan::{Axis, Zero, text};
use stepscope_traces::{Family, SpanKind};

use super::{
    Check, Found,
    time::{all_time, is_ours, per_step, whole, windows, worth},
};
use crate::figures::{Analysis, AxisShare, Cause, CollectiveFigures};

/// So little of it overlaps that nobody tried to.
const NO_OVERLAP: f64 = 0.05;

/// Less exposed communication of the host is not worth telling.
const LEAST_SHARE_OF_HOST: f64 = 0.1;

/// Communication that costs time: one for each axis. Messages between the stages of a pipeline wait for other stages, which is
/// its bubble; of them only the way counts. Without a device, that of the host.
pub(super) struct ExposedCommunication;

impl Check for ExposedCommunication {
    const KIND: &'static str = "exposed-communication";

    fn find(analysis: &Analysis) -> Option<Found> {
        Self::find_all(analysis).into_iter().next()
    }

    fn find_all(analysis: &Analysis) -> Vec<Found> {
        let axes = AxisShare::sum(analysis.counted.iter().flat_map(|time| &time.breakdown.axes));
        axes.into_iter().filter_map(|share| of_axis(analysis, &share)).chain(of_host(analysis)).collect()
    }
}

/// Communication of the host that no other operator hides, where nothing ran on a device.
fn of_host(analysis: &Analysis) -> Option<Found> {
    let ranks = analysis.host.iter().flat_map(|host| &host.ranks);
    let times = ranks.filter_map(|rank| Some((rank.time_ns, rank.communication_ns?, rank.exposed_communication_ns?)));
    let (time, communication, exposed) =
        times.reduce(|one, other| (one.0 + other.0, one.1 + other.1, one.2 + other.2))?;
    let nothing_ran = analysis.counted.iter().all(|time| time.kernel_count == 0);
    let share = exposed as f64 / time.max(1) as f64;
    (nothing_ran && share >= LEAST_SHARE_OF_HOST).then(|| Found {
        share,
        summary: format!("exposed communication: {} of {}", text::rough_percent(share), whole(analysis)),
        evidence: format!(
            "{} of it{} on the host, and {}",
            text::duration(communication / windows(analysis)),
            per_step(analysis),
            hides(1.0 - exposed as f64 / communication.max(1) as f64, "other operators")
        ),
        advice: "overlap it with compute (DistributedDataParallel does, in buckets), send less or less often (accumulate more \
                 micro-batches per step), or look at the network and at ranks that come late"
            .into(),
        lost_ns: Some(exposed / windows(analysis)),
        ..Found::default()
    })
}

fn of_axis(analysis: &Analysis, axis: &AxisShare) -> Option<Found> {
    let cause = Cause::Communication { axis: axis.axis };
    let lost = axis.exposed_ns / windows(analysis);
    worth(analysis, &[cause], lost)?;
    let share = axis.exposed_ns as f64 / all_time(analysis).max(1) as f64;
    let name = match axis.axis {
        Some(axis) => format!("exposed {} communication", adjective(axis)),
        None => "exposed communication".to_owned(),
    };
    let (why, advice) = match mostly_waits(analysis, axis) {
        true => (
            ", most of it waiting for slower ranks",
            "let ranks come together: look at those that others wait for, at uneven work and at their hosts".into(),
        ),
        false => ("", advice(analysis, axis)),
    };
    Some(Found {
        share,
        summary: format!("{name}: {} of {}{why}", text::rough_percent(share), whole(analysis)),
        evidence: evidence(analysis, axis),
        advice,
        lost_ns: Some(lost),
        causes: vec![cause],
        ..Found::default()
    })
}

/// Whether ranks wait for each other in most of what is exposed.
fn mostly_waits(analysis: &Analysis, axis: &AxisShare) -> bool {
    let operations = analysis.collectives.iter().filter(|collective| collective.axis == axis.axis);
    // What is waited is exposed as much as the rest of an operation, as far as is known.
    let waiting: f64 = operations
        .map(|one| one.waiting_ns.unwrap_or(0) as f64 * one.exposed_ns as f64 / one.busy_ns.max(1) as f64)
        .sum();
    waiting > 0.5 * axis.exposed_ns as f64
}

/// What communication along an axis is called.
fn adjective(axis: Axis) -> &'static str {
    match axis {
        Axis::Data | Axis::DataContext => "data-parallel",
        Axis::Tensor | Axis::TensorData | Axis::TensorContext | Axis::TensorPipeline | Axis::TensorExpert => {
            "tensor-parallel"
        }
        Axis::Pipeline => "pipeline",
        Axis::Context => "context-parallel",
        Axis::Expert => "expert-parallel",
        Axis::Sequence => "sequence-parallel",
        Axis::World => "whole-job",
        Axis::Embedding => "embedding",
    }
}

/// How long it takes, what hides of it, and which operation takes most.
fn evidence(analysis: &Analysis, axis: &AxisShare) -> String {
    let time = text::duration(axis.communication_ns / windows(analysis));
    let time = format!("{time} of it{}", per_step(analysis));
    let hides = hides(axis.overlap(), "compute");
    let operations = analysis.collectives.iter().filter(|collective| collective.axis == axis.axis);
    let most =
        operations.max_by_key(|collective| collective.exposed_ns).map(|most| format!("; {}", told(analysis, most)));
    format!("{time}, and {hides}{}{}", most.unwrap_or_default(), waits(analysis, axis.axis).unwrap_or_default())
}

/// How much of it something hides.
fn hides(overlap: f64, what: &str) -> String {
    match overlap {
        overlap if overlap < 0.005 => format!("none of it overlaps with {what}"),
        overlap => format!("only {} of it overlaps with {what}", text::rough_percent(overlap)),
    }
}

/// Which work waits for it, if most of the waiting is that of one kind.
fn waits(analysis: &Analysis, axis: Option<Axis>) -> Option<String> {
    const MOST: f64 = 0.4;
    let waiting = analysis.what_if.as_ref()?.without(Cause::Communication { axis })?.waiting?;
    let phase = waiting.phase.map(|phase| format!("in the {} phase", phase.word()));
    let kernels = format!("{} kernels", waiting.family.word());
    (waiting.share >= MOST && waiting.family != Family::Other).then(|| match phase {
        Some(phase) => format!("; {kernels} {phase} wait for it most"),
        None => format!("; {kernels} wait for it most"),
    })
}

/// The operation that costs most.
fn told(analysis: &Analysis, most: &CollectiveFigures) -> String {
    let windows = windows(analysis);
    let name = most.operation.word().replace('_', "-");
    let waiting = most.waiting_ns.filter(|waiting| *waiting > 0).map(|waiting| {
        format!(
            ", of which {} waits for slower ranks",
            text::rough_percent(waiting as f64 / most.busy_ns.max(1) as f64)
        )
    });
    let exposed = text::duration(most.exposed_ns / windows);
    let rate = most.bus_bandwidth.map(|rate| format!(", at {}", text::bandwidth(rate)));
    format!("{name} costs {exposed}{}{}", waiting.unwrap_or_default(), rate.unwrap_or_default())
}

/// Whether an operation costs most of what is exposed along an axis.
fn is_mostly(analysis: &Analysis, axis: &AxisShare, operation: SpanKind) -> bool {
    let of_axis = analysis.collectives.iter().filter(|collective| collective.axis == axis.axis);
    of_axis.max_by_key(|collective| collective.exposed_ns).is_some_and(|most| most.operation == operation)
}

/// What to try, as the job is set up.
fn advice(analysis: &Analysis, axis: &AxisShare) -> String {
    let layout = analysis.run.layout;
    let zero = layout.and_then(|layout| layout.zero);
    let overlaps = axis.overlap() >= NO_OVERLAP;
    let ours = is_ours(analysis);
    match axis.axis {
        None if analysis.ranks.len() < analysis.run.world_size as usize => {
            "record and analyze all ranks, to see whether it waits for them or for links; and overlap it with compute".into()
        }
        None => "overlap it with compute, or send less; which ranks talk to each other was not recorded".into(),
        Some(Axis::Data | Axis::DataContext) if zero == Some(Zero::Three) => {
            let how = if ours { "" } else { " (FSDP: `set_modules_to_forward_prefetch`, `reshard_after_forward=False`)" };
            format!(
                "gather parameters one unit ahead{how}, use larger units, shard within a node only, or accumulate more \
                 micro-batches per gather"
            )
        }
        Some(Axis::Data | Axis::DataContext) if overlaps => {
            "it overlaps already: reduce less often (accumulate more micro-batches), in bf16, or in buckets of another size \
             so that little is left after the last layer; or look at the links"
                .into()
        }
        Some(Axis::Data | Axis::DataContext) => {
            "reduce gradients in buckets during the backward pass, or accumulate more micro-batches per step".into()
        }
        Some(Axis::Pipeline) => "look at the links between stages, or send smaller activations".into(),
        Some(Axis::Context) => "overlap keys and values with attention, as a ring does, or use fewer ranks for each sequence".into(),
        Some(Axis::Expert | Axis::TensorExpert) => {
            "keep experts within a node, overlap dispatch and combine with other experts, or balance the router".into()
        }
        Some(Axis::World) if is_mostly(analysis, axis, SpanKind::AllToAll) => {
            "overlap all-to-all with compute, send less (smaller types, what several ranks need once), or even out what ranks \
             send"
                .into()
        }
        Some(Axis::World) => "sum metrics and norms less often, or together with gradients".into(),
        Some(Axis::Embedding) => "untie the embedding, or reduce its gradients while other layers go backward".into(),
        Some(_) if analysis.run.layout.is_some_and(|layout| layout.sequence_parallel == Some(true)) => {
            "use fewer tensor-parallel ranks, or gather and scatter in pieces, beside the matrix products they belong to".into()
        }
        Some(_) => "use fewer tensor-parallel ranks, or sequence parallelism with overlapped communication".into(),
    }
}
