//! A trace, rank by rank.

use std::io::Write;

use super::{
    counters::{Counters, Reading},
    detail::Level,
    error::ExportError,
    marks::{write_marks, write_on_group, write_stretches},
    memory::MemoryCounters,
    packets::Packets,
    plan::{RankPlan, TracePlan},
    schema::{ChromeEventBundle, ChromeMetadata, Data, TracePacket, TracingServiceEvent},
    spans::SpanSlices,
    text::clean,
    timing::{Timing, shifted},
    tracks::{Group, ROOT, TrackPlace, Unit},
    writing::Writing,
    written::Written,
};
use crate::{rank_data::RankData, reader::RankReport};

/// Writes a trace, rank by rank, without ever having all of it.
pub struct Trace<'w> {
    into: Writing<'w>,
    plan: &'w TracePlan,
}

impl<'w> Trace<'w> {
    /// Begins a trace with its metadata and the tracks of all ranks together.
    pub fn begin(into: &'w mut dyn Write, plan: &'w TracePlan) -> Trace<'w> {
        let mut packets = Packets::new(into, plan.limit);
        packets.push(&packet(Data::ChromeEvents(metadata(&plan.metadata))));
        view(plan).iter().flatten().for_each(|event| packets.push(event));
        let mut into = Writing::begin(packets);
        into.written.next_flow = plan.next_flow;
        let mut trace = Trace { into, plan };
        trace.whole_run();
        trace
    }

    /// Writes the tracks of all ranks together, as a group above theirs.
    fn whole_run(&mut self) {
        let TracePlan { name, steps, marks, stretches, series, shift, .. } = self.plan;
        let group = self.into.track(&TrackPlace { parent: ROOT, order: 0, name: name.clone() });
        write_on_group(steps, group, *shift, &mut self.into);
        write_marks(marks, "events", group, *shift, &mut self.into);
        write_stretches(stretches, group, *shift, &mut self.into);
        let mut counters = Counters::of(group);
        for (order, series) in (0..).zip(series) {
            let mut counter = counters.counter((Group::Training, &series.name), &series.unit, order, &mut self.into);
            for (time, value) in &series.values {
                counter.push(shifted(*time, *shift), Reading::Number(*value), &mut self.into);
            }
        }
    }

    /// Writes a rank.
    pub fn rank(&mut self, plan: &RankPlan<'_>) -> Result<RankReport, ExportError> {
        let shift = self.plan.shift;
        let timing = Timing { align: plan.align, shift };
        let order = plan.order.saturating_add(1);
        let group = self.into.track(&TrackPlace { parent: ROOT, order, name: plan.name.clone() });
        write_on_group(&plan.steps, group, shift, &mut self.into);
        write_marks(&plan.marks, "events", group, shift, &mut self.into);
        write_stretches(&plan.stretches, group, shift, &mut self.into);
        let into = std::cell::RefCell::new(&mut self.into);
        let mut spans = SpanSlices::new(plan, self.plan.detail, group, timing);
        let mut memory = MemoryCounters::new(plan, self.plan.detail, group, timing);
        let (data, report) = plan.rank.read_in_pieces(
            crate::window::Window::ALL,
            |data, piece| spans.take(piece, &data.names, &mut into.borrow_mut()),
            |events| {
                if self.plan.detail.has(Level::Memory) {
                    memory.take(events, &mut into.borrow_mut());
                }
            },
        )?;
        let into = into.into_inner();
        spans.finish(&data.names, into);
        memory.finish(into);
        write_samples(&data, plan, group, timing, into);
        self.into.packets.check()?;
        Ok(report)
    }

    /// Ends the trace, with what is known of it only then.
    pub fn finish(mut self) -> Result<Written, ExportError> {
        let clipped = ("stepscope.clipped".to_owned(), self.into.written.clipped.to_string());
        self.into.packets.push(&packet(Data::ChromeEvents(metadata(&[clipped]))));
        let bytes = self.into.packets.finish()?;
        Ok(Written { bytes, ..self.into.written })
    }
}

/// Writes the values that were sampled while a rank ran.
fn write_samples(data: &RankData, plan: &RankPlan<'_>, parent: u64, timing: Timing<'_>, into: &mut Writing<'_>) {
    let mut samples: Vec<_> = data.counters.rows().collect();
    samples.retain(|sample| plan.window.touches((sample.time_ns, sample.time_ns)));
    samples.sort_by_key(|sample| sample.time_ns);
    let mut counters = Counters::of(parent);
    let mut told = std::collections::HashMap::new();
    for sample in samples {
        let name = data.names.counter(sample.counter).unwrap_or("unnamed");
        let Some(group) = group(name) else { continue };
        let counter = told.entry(sample.counter).or_insert_with(|| {
            let order = i32::from(sample.counter.0);
            counters.counter((group, name), &(plan.unit)(name), order, into)
        });
        counter.push(timing.at(sample.time_ns), Reading::Number(sample.value), into);
    }
}

/// The group that a counter is shown in; none, where it is not: what the recorder counts of itself says nothing of the run,
/// and what it lost is said elsewhere.
fn group(counter: &str) -> Option<Group> {
    match counter.split_once('.') {
        Some(("gpu" | "pcie" | "nvlink", _)) => Some(Group::Device),
        Some(("recorder", _)) => None,
        _ => Some(Group::Training),
    }
}

fn packet(data: Data) -> TracePacket {
    TracePacket { data: Some(data), ..Default::default() }
}

/// What makes the UI show a stretch of time first: as if the recording had begun and ended with it.
fn view(plan: &TracePlan) -> Option<[TracePacket; 2]> {
    let (from, to) = plan.view?;
    let event = |time: i64, event: TracingServiceEvent| TracePacket {
        timestamp: Some(shifted(time, plan.shift)),
        ..packet(Data::ServiceEvent(event))
    };
    let (started, disabled) = (
        TracingServiceEvent { tracing_started: Some(true), tracing_disabled: None },
        TracingServiceEvent { tracing_started: None, tracing_disabled: Some(true) },
    );
    Some([event(from, started), event(to, disabled)])
}

fn metadata(entries: &[(String, String)]) -> ChromeEventBundle {
    let entry = |(name, value): &(String, String)| ChromeMetadata {
        name: Some(clean(name).into_owned()),
        string_value: Some(clean(value).into_owned()),
    };
    ChromeEventBundle { metadata: entries.iter().map(entry).collect() }
}

impl Unit {
    /// A unit of which nothing is known.
    pub const UNKNOWN: Unit = Unit::Named(String::new());
}
