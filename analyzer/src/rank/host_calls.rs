//! What the host did that may be why a device is idle.

use hashbrown::HashMap;
use stepscope_traces::{DriverCall, NameId, Names, Phase, SpanKind, Spans};

use crate::rank::intervals::Intervals;

/// What is collected of the host while the spans of a rank are read.
#[derive(Default)]
pub(crate) struct HostCallReading {
    /// When calls began that launch something.
    launches: Vec<i64>,
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
    /// When calls began that launch something.
    pub(crate) launches: Vec<i64>,
    /// Calls that wait for the device, by their beginning.
    pub(crate) waits: Vec<(i64, i64)>,
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
                        Some(DriverCall::Records) => self.recording.push(span),
                        None => self.launches.push(start),
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn finish(mut self) -> HostCalls {
        self.launches.sort_unstable();
        self.waits.sort_unstable();
        HostCalls {
            launches: self.launches,
            waits: self.waits,
            allocations: Intervals::union_of(self.allocations),
            recording: Intervals::union_of(self.recording),
            evaluation: Intervals::union_of(self.evaluation),
            checkpoints: Intervals::union_of(self.checkpoints),
        }
    }
}

impl HostCalls {
    /// Whether a call that waits for the device was under way at a moment. Clocks of host and device may be a little apart.
    pub(crate) fn waits_at(&self, time: i64) -> bool {
        const APART: i64 = 5_000;
        let after = self.waits.partition_point(|(start, _)| *start <= time);
        self.waits[..after].last().is_some_and(|(_, end)| *end + APART >= time)
    }

    /// Whether something was launched in a stretch of time.
    pub(crate) fn launches_in(&self, from: i64, to: i64) -> bool {
        let first = self.launches.partition_point(|launch| *launch < from);
        self.launches.get(first).is_some_and(|launch| *launch < to)
    }
}
