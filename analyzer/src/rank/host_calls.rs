//! What the host did that may be why a device is idle.

use hashbrown::HashMap;
use stepscope_traces::{DriverCall, NameId, Names, Phase, SpanKind, Spans};

use crate::rank::{activity::Call, intervals::Intervals};

/// A call that launches something usually takes some microseconds. The first one of a kernel loads it, and others wait for
/// threads that hold the driver.
const SLOW: i64 = 1_000_000;
/// So long a slow call may go on when what it launches has begun. One that goes on for longer waits for room in the queue.
const GOES_ON: i64 = 100_000;
/// A copy of which the call takes so long has waited for the device, as those of pageable memory do, whatever they are called.
const LONG_COPY: i64 = 100_000;

/// A call that launches something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchCall {
    pub(crate) call: Call,
    /// When it began.
    pub(crate) time: i64,
}

/// What is collected of the host while the spans of a rank are read.
#[derive(Default)]
pub(crate) struct HostCallReading {
    launches: Vec<LaunchCall>,
    slow_launches: Vec<(i64, i64)>,
    waits: Vec<(i64, i64)>,
    allocations: Vec<(i64, i64)>,
    recording: Vec<(i64, i64)>,
    evaluation: Vec<(i64, i64)>,
    checkpoints: Vec<(i64, i64)>,
    /// What calls of a name do besides launching.
    known: HashMap<NameId, Option<DriverCall>>,
}

/// What the host did, in order.
#[derive(Default)]
pub(crate) struct HostCalls {
    /// Calls that launch something.
    pub(crate) launches: Launches,
    /// Calls that launch something and take long, or load it.
    pub(crate) slow_launches: Intervals,
    /// When the host waited for the device.
    pub(crate) waits: Intervals,
    pub(crate) allocations: Intervals,
    /// When the recorder itself is at work.
    pub(crate) recording: Intervals,
    pub(crate) evaluation: Intervals,
    pub(crate) checkpoints: Intervals,
}

impl HostCallReading {
    pub(crate) fn take(&mut self, names: &Names, spans: &Spans) {
        for row in 0..spans.len() {
            let (kind, phase) = (spans.kind.get(row), spans.phase.get(row));
            if !matches!(kind, SpanKind::Launch | SpanKind::Phase) {
                continue;
            }
            let start = spans.start_ns.get(row).0;
            let span = (start, start.saturating_add(spans.duration_ns.get(row).0.max(0)));
            match (kind, phase) {
                (SpanKind::Phase, Some(Phase::Evaluation)) => self.evaluation.push(span),
                (SpanKind::Phase, Some(Phase::Checkpoint)) => self.checkpoints.push(span),
                (SpanKind::Launch, _) => {
                    let name = spans.name.get(row);
                    let does = || DriverCall::of(names.get(name).unwrap_or_default());
                    match self.known.entry(name).or_insert_with(does) {
                        Some(DriverCall::Waits) => self.waits.push(span),
                        Some(DriverCall::Allocates) => self.allocations.push(span),
                        Some(DriverCall::Loads) => self.slow_launches.push(span),
                        Some(DriverCall::Records) => self.recording.push(span),
                        None => self.take_launch(names.get(name).unwrap_or_default(), Call::of(spans, row), span),
                    }
                }
                _ => {}
            }
        }
    }

    fn take_launch(&mut self, name: &str, call: Call, span: (i64, i64)) {
        let (took, is_copy) = (span.1 - span.0, name.contains("Memcpy"));
        let is_slow = !is_copy && took >= SLOW && !is_of_graphs(name);
        // What a slow one launches begins about when it ends.
        self.launches.push(LaunchCall { call, time: if is_slow { span.1 - GOES_ON } else { span.0 } });
        if is_slow {
            self.slow_launches.push(span);
        } else if is_copy && took >= LONG_COPY {
            self.waits.push(span);
        }
    }

    pub(crate) fn finish(self) -> HostCalls {
        HostCalls {
            launches: Launches::of(self.launches),
            slow_launches: Intervals::union_of(self.slow_launches),
            waits: Intervals::union_of(self.waits),
            allocations: Intervals::union_of(self.allocations),
            recording: Intervals::union_of(self.recording),
            evaluation: Intervals::union_of(self.evaluation),
            checkpoints: Intervals::union_of(self.checkpoints),
        }
    }
}

/// Calls that launch something.
#[derive(Default)]
pub(crate) struct Launches {
    by_time: Vec<LaunchCall>,
    /// Those of which more is known than their time, by call and time: which of the others each is.
    by_call: Vec<u32>,
}

impl Launches {
    pub(crate) fn of(mut by_time: Vec<LaunchCall>) -> Launches {
        by_time.sort_by_key(|launch| launch.time);
        let known = by_time.iter().zip(0..).filter(|(launch, _)| launch.call.is_known());
        let mut by_call: Vec<u32> = known.map(|(_, index)| index).collect();
        by_call.sort_by_key(|index| by_time[*index as usize].call);
        Launches { by_time, by_call }
    }

    /// Whether anything was launched in a stretch of time.
    pub(crate) fn any_in(&self, from: i64, to: i64) -> bool {
        let first = self.by_time.partition_point(|launch| launch.time < from);
        self.by_time.get(first).is_some_and(|launch| launch.time < to)
    }
}

/// Finds launches. What runs next was mostly launched soon after.
pub(crate) struct LaunchFinder<'a> {
    launches: &'a Launches,
    /// The last one that was found, by call.
    next: usize,
}

/// So many of the next launches are looked at before all of them are.
const SOON: usize = 16;

impl LaunchFinder<'_> {
    pub(crate) fn new(launches: &Launches) -> LaunchFinder<'_> {
        LaunchFinder { launches, next: 0 }
    }

    /// When a call launched what begins at a time; none, where the call is not known.
    pub(crate) fn time_of(&mut self, call: Call, begins: i64) -> Option<i64> {
        let Launches { by_time, by_call } = self.launches;
        let launch = |index: &u32| by_time[*index as usize];
        let is_before = |index: &u32| (launch(index).call, launch(index).time) <= (call, begins);
        let soon = &by_call[self.next..by_call.len().min(self.next + SOON)];
        let found = soon.iter().position(|index| !is_before(index)).filter(|more| *more > 0);
        let later = found.map_or_else(|| by_call.partition_point(is_before), |more| self.next + more);
        self.next = later.saturating_sub(1);
        let last = launch(&by_call[later.checked_sub(1)?]);
        (last.call == call).then_some(last.time)
    }
}

/// Whether a call has to do with graphs, of which large ones take long to launch each time.
fn is_of_graphs(name: &str) -> bool {
    name.contains("Graph")
}

#[cfg(test)]
mod tests {
    use stepscope_traces::FIRST_NAME;

    use super::*;
    use crate::test_runs::span;

    #[test]
    fn launches_are_told_by_how_long_they_take() {
        let of = |name: &str, microseconds: i64| {
            let (mut names, mut spans) = (Names::default(), Spans::default());
            names.extend([(FIRST_NAME, name)]);
            spans.push(&span(SpanKind::Launch, 0, microseconds * 1_000));
            let mut reading = HostCallReading::default();
            reading.take(&names, &spans);
            let host = reading.finish();
            let span = vec![(0, microseconds * 1_000)];
            assert!(host.launches.any_in(0, i64::MAX));
            let all = [&host.waits, &host.slow_launches, &host.allocations, &host.recording];
            all.map(|times| times.iter().collect::<Vec<_>>() == span)
        };
        assert_eq!(of("cudaLaunchKernel", 900), [false; 4]);
        assert_eq!(of("cudaLaunchKernel", 1_100), [false, true, false, false]);
        assert_eq!(of("cudaGraphLaunch", 9_000), [false; 4]);
        assert_eq!(of("cudaMemcpyAsync", 90), [false; 4]);
        assert_eq!(of("hipMemcpyAsync", 110), [true, false, false, false]);
    }
}
