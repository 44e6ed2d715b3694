//! What one device did: the streams of a GPU, or the operations of a TPU.
//!
//! A GPU has a line for each stream; all its other lines are derived from those. A TPU has no streams: what its core runs is
//! on one line, and what goes on beside the core on another. Steps are on a line, too, where the profiler found them.

use super::{
    super::{
        device_work::{DeviceWork, kernel_name},
        profile::{Activity, Profile, TrainingContext},
    },
    hlo::{self, Programs},
    plane::{Line, Plane, StatName, TimedEvent},
};
use crate::{
    ids::{Correlation, NameId, Nanos, Step, Stream},
    loss::Loss,
    rank_info::Device,
    tables::Span,
    vocabulary::SpanKind,
};

/// How lines of streams begin; their number follows.
const STREAM: &str = "Stream #";
/// The lines of a TPU that have its work: what its core does, what goes on beside it.
const OPERATIONS: &str = "XLA Ops";
const ASYNCHRONOUS: &str = "Async XLA Ops";
const MODULES: &str = "XLA Modules";
const STEPS: &str = "Steps";

/// Streams of a TPU, by our own numbers.
const CORE: Stream = Stream(0);
const BESIDE_THE_CORE: Stream = Stream(1);

/// What makes a plane that of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Gpu,
    Tpu,
}

impl DeviceKind {
    /// What a plane of this name is of, and which of them.
    pub(super) fn of(plane: &str) -> Option<(DeviceKind, u32)> {
        let kinds = [("/device:GPU:", DeviceKind::Gpu), ("/device:TPU:", DeviceKind::Tpu)];
        kinds.iter().find_map(|(prefix, kind)| Some((*kind, plane.strip_prefix(prefix)?.parse().ok()?)))
    }
}

/// What a device did.
#[derive(Default)]
pub(super) struct DeviceProfile {
    pub(super) profile: Profile,
    pub(super) loss: Loss,
    /// Whether the device's own steps are in it.
    pub(super) has_steps: bool,
    work: DeviceWork,
}

/// What lies in a stretch of time on a line: a step, or the run of a module.
struct LineStretch<T> {
    start: Nanos,
    end: Nanos,
    what: T,
}

/// Which of some stretches, in order, a time is in.
fn at<T>(stretches: &[LineStretch<T>], time: Nanos) -> Option<&T> {
    let after = stretches.partition_point(|stretch| stretch.start <= time);
    stretches[..after].last().filter(|stretch| time < stretch.end).map(|stretch| &stretch.what)
}

impl DeviceProfile {
    /// Reads the plane of a device. `steps_of_host`: whether the host says which step is when, and launches tell the rest.
    pub(super) fn of(
        plane: &Plane<'_>,
        kind: DeviceKind,
        base: i64,
        programs: &Programs,
        steps_of_host: bool,
    ) -> DeviceProfile {
        let mut device = DeviceProfile { loss: plane.loss, ..DeviceProfile::default() };
        let lines: Vec<Line<'_>> = plane.lines().collect();
        let steps = match kind == DeviceKind::Tpu || !steps_of_host {
            true => device.stretches(plane, &lines, base, STEPS, step_of),
            false => Vec::new(),
        };
        let modules = device.stretches(plane, &lines, base, MODULES, |event| Some(event.kind.name.clone()));
        for line in &lines {
            let stream = match kind {
                DeviceKind::Gpu => stream_of(&line.name),
                DeviceKind::Tpu if line.name == OPERATIONS => Some(CORE),
                DeviceKind::Tpu if line.name == ASYNCHRONOUS => Some(BESIDE_THE_CORE),
                DeviceKind::Tpu => None,
            };
            let Some(stream) = stream else { continue };
            let before = device.profile.rows.activities.len();
            let mut loss = std::mem::take(&mut device.loss);
            plane.events(line, base, &mut loss, |event| {
                let module = at(&modules, event.start).map(|module| without_number(module));
                let mut span = match kind {
                    DeviceKind::Gpu => device.of_gpu(&event),
                    DeviceKind::Tpu => Some(device.of_tpu(&event)),
                };
                if let Some(span) = &mut span {
                    let (origin, phase) = hlo::origin_of(&event, module, programs);
                    span.origin = origin.map(|origin| device.profile.names.id(&origin));
                    span.phase = phase;
                    span.step = at(&steps, event.start).copied();
                    span.stream = Some(stream);
                    device.profile.activity(Activity { span: *span, device: None, external: None });
                }
            });
            device.loss = loss;
            if stream == CORE && kind == DeviceKind::Tpu {
                leave_out_containers(&mut device.profile.rows.activities, before);
            }
        }
        device.has_steps = !steps.is_empty();
        for LineStretch { start, end, what } in &steps {
            let place = TrainingContext { step: Some(*what), ..TrainingContext::default() };
            device.profile.annotation(None, *start, *end - *start, place, &format!("step {what}"));
        }
        device
    }

    fn stretches<T>(
        &mut self,
        plane: &Plane<'_>,
        lines: &[Line<'_>],
        base: i64,
        name: &str,
        what: impl Fn(&TimedEvent<'_>) -> Option<T>,
    ) -> Vec<LineStretch<T>> {
        let mut stretches = Vec::new();
        for line in lines.iter().filter(|line| line.name == name) {
            plane.events(line, base, &mut self.loss, |event| {
                let (start, end) = (event.start, event.start + event.duration);
                stretches.extend(what(&event).map(|what| LineStretch { start, end, what }));
            });
        }
        stretches.sort_by_key(|stretch| stretch.start);
        stretches
    }

    /// A kernel, a copy or a fill. Memory that is asked for is nothing that the device does.
    fn of_gpu(&mut self, event: &TimedEvent<'_>) -> Option<Span> {
        if event.has(StatName::Allocated) {
            return None;
        }
        let text = kernel_name(&event.kind.name);
        let name = self.profile.names.id(text);
        let details = |name| event.text(name).and_then(|details| size_in(&details));
        let mut span = match () {
            () if event.has(StatName::Copied) || text.starts_with("Memcpy") => {
                Span { bytes: details(StatName::Copied), ..span(SpanKind::Copy, name, event) }
            }
            () if event.has(StatName::Filled) || text.starts_with("Memset") => {
                Span { bytes: details(StatName::Filled), ..span(SpanKind::Set, name, event) }
            }
            () => {
                let by_name = self.work.of_kernel(name, text);
                let by_instruction = event.text(StatName::HloOp).and_then(|name| hlo::communication_of(&name));
                let is_open = matches!(by_name, SpanKind::Kernel | SpanKind::Communication);
                span(by_instruction.filter(|_| is_open).unwrap_or(by_name), name, event)
            }
        };
        span.correlation = event.whole(StatName::Correlation).map(Correlation);
        Some(span)
    }

    /// An operation of a compiled program.
    fn of_tpu(&mut self, event: &TimedEvent<'_>) -> Span {
        let kind = event.kind;
        // The whole instruction is the name where there is a shorter one to show.
        let text = if kind.display_name.is_empty() { instruction_name(&kind.name) } else { &kind.display_name };
        let name = self.profile.names.id(text);
        let category = event.text(StatName::HloCategory).unwrap_or_default();
        let communication = hlo::communication_of(text).or_else(|| hlo::communication_of(&category));
        match communication {
            Some(communication) => span(communication, name, event),
            None if hlo::is_copy(text) || hlo::is_copy(&category) => {
                Span { bytes: event.whole(StatName::BytesAccessed), ..span(SpanKind::Copy, name, event) }
            }
            None => Span {
                flops: event.whole(StatName::Flops),
                bytes: event.whole(StatName::BytesAccessed),
                ..span(SpanKind::Kernel, name, event)
            },
        }
    }
}

fn span(kind: SpanKind, name: NameId, event: &TimedEvent<'_>) -> Span {
    Span::new(kind, name, event.start, event.duration)
}

/// Loops, branches and calls have what runs in them on the same line. What has others in it does no work of its own.
fn leave_out_containers(activities: &mut Vec<Activity>, from: usize) {
    let own = &mut activities[from..];
    own.sort_by_key(|Activity { span, .. }| (span.start_ns, std::cmp::Reverse(span.duration_ns)));
    let mut is_leaf = vec![true; own.len()];
    // The next one behind each that takes time.
    let mut next: Option<(Nanos, Nanos)> = None;
    for (Activity { span, .. }, is_leaf) in own.iter().zip(&mut is_leaf).rev() {
        let (_, end) = span.interval();
        *is_leaf = next.is_none_or(|(next_start, next_end)| next_start >= end || next_end > end);
        next = Some(span.interval()).filter(|_| span.duration_ns.0 > 0).or(next);
    }
    let mut leaves = std::iter::repeat_n(true, from).chain(is_leaf);
    activities.retain(|_| leaves.next().unwrap_or(true));
}

/// The number of the stream that a line is of.
fn stream_of(line: &str) -> Option<Stream> {
    let number = line.strip_prefix(STREAM)?;
    let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok().map(Stream)
}

/// The step of an event on the line of steps: as it is said, else as the event is called.
fn step_of(event: &TimedEvent<'_>) -> Option<Step> {
    let title = || event.text(StatName::StepTitle).unwrap_or_else(|| event.kind.name.clone());
    let called = || title().rsplit([' ', '#', '_']).next().and_then(|number| number.parse().ok());
    let said = event.whole(StatName::StepNumber).and_then(|step| i32::try_from(step).ok());
    said.or_else(called).map(Step)
}

/// The name of a module without the number of the program: `jit_step(123)`.
fn without_number(module: &str) -> &str {
    module.split('(').next().unwrap_or(module)
}

/// The name of an instruction that stands as a whole: `%fusion.3 = bf16[8,128] fusion(…)`.
fn instruction_name(instruction: &str) -> &str {
    instruction.split(" = ").next().unwrap_or(instruction).trim_start_matches('%')
}

/// The size among details: `kind_src:device kind_dst:host size:4096 dest:0 async:1`.
fn size_in(details: &str) -> Option<u64> {
    let words = || details.split([' ', ',']);
    let said = |key: &str| words().find_map(|word| word.strip_prefix(key)).and_then(|size| size.parse().ok());
    said("size:").or_else(|| said("num_bytes:")).filter(|size| *size > 0)
}

/// The device of a plane, as far as the profile tells. GPUs have no names there.
pub(super) fn device_of(plane: &Plane<'_>) -> Option<Device> {
    let memory_bytes = plane.whole(StatName::Memory).filter(|bytes| *bytes > 0);
    let name = plane.text(StatName::DeviceType).or_else(|| {
        let vendor = plane.text(StatName::Vendor)?;
        let capability = plane.whole(StatName::ComputeMajor).zip(plane.whole(StatName::ComputeMinor));
        Some(match (capability, plane.whole(StatName::Cores)) {
            (Some((major, minor)), Some(cores)) => format!("{vendor} GPU {major}.{minor} with {cores} cores"),
            _ => format!("{vendor} GPU"),
        })
    })?;
    let known = stepscope_plan::Device::named(&name).ok().map(|device| device.peaks.bf16);
    let said = plane.number(StatName::PeakTeraflops).map(|tera| tera * 1e12);
    Some(Device { name, memory_bytes, peak_flops: known.or(said).and_then(stepscope_plan::possible_peak) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lines_and_details_say() {
        assert_eq!(stream_of("Stream #13(Compute)"), Some(Stream(13)));
        assert_eq!(stream_of("Stream #2"), Some(Stream(2)));
        assert_eq!(stream_of("Stream #"), None);
        assert_eq!(stream_of("XLA Ops"), None);
        assert_eq!(size_in("kind_src:device kind_dst:host size:4096 dest:0 async:1"), Some(4096));
        assert_eq!(size_in("kind:Unknown size:0 dest:512"), None);
        assert_eq!(instruction_name("%fusion.3 = bf16[8,128] fusion(%a)"), "fusion.3");
        assert_eq!(DeviceKind::of("/device:TPU:3"), Some((DeviceKind::Tpu, 3)));
        assert_eq!(DeviceKind::of("/device:TPU:3 SparseCore 1"), None);
    }

    #[test]
    fn a_loop_is_not_counted_beside_what_runs_in_it() {
        let activity = |start, duration| Activity {
            span: Span::new(SpanKind::Kernel, NameId(0), Nanos(start), Nanos(duration)),
            device: None,
            external: None,
        };
        let mut activities = vec![activity(0, 5), activity(10, 10), activity(0, 10), activity(5, 5), activity(12, 3)];
        leave_out_containers(&mut activities, 1);
        let kept: Vec<i64> = activities.iter().map(|activity| activity.span.duration_ns.0).collect();
        assert_eq!(kept, [5, 5, 3], "the first is of another line");
    }
}
