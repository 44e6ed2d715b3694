//! A trace, rank by rank.

use std::io::Write;

use super::{
    counters::{Counters, Reading},
    detail::Level,
    error::ExportError,
    marks::{write_marks, write_stretches},
    memory::MemoryCounters,
    packets::Packets,
    plan::{RankPlan, TracePlan},
    schema::{ChromeEventBundle, ChromeMetadata, Clock, ClockSnapshot, Data, ProcessDescriptor, TracePacket},
    spans::SpanSlices,
    text::clean,
    timing::{Timing, shifted},
    tracks::{Group, Unit},
    writing::Writing,
    written::Written,
};
use crate::{rank_data::RankData, reader::RankReport};

/// The clock of the whole trace, as Perfetto numbers clocks. All versions take this one unless they are told otherwise.
const TRACE_CLOCK: u32 = 6;
/// How far apart the numbers of processes are: those of their threads lie in between.
const PROCESS_STRIDE: i32 = 10_000;

/// Writes a trace, rank by rank, without ever having all of it.
pub struct Trace<'w> {
    into: Writing<'w>,
    plan: &'w TracePlan,
    /// How many processes there are.
    processes: i32,
}

impl<'w> Trace<'w> {
    /// Begins a trace with its metadata and the tracks of all ranks together.
    pub fn begin(into: &'w mut dyn Write, plan: &'w TracePlan) -> Trace<'w> {
        let mut packets = Packets::new(into, plan.limit);
        packets.push(&packet(Data::ClockSnapshot(clock())));
        packets.push(&packet(Data::ChromeEvents(metadata(plan))));
        let mut into = Writing::begin(packets);
        into.written.next_flow = plan.next_flow;
        let mut trace = Trace { into, plan, processes: 0 };
        trace.whole_run();
        trace
    }

    /// Writes the tracks of all ranks together, as a process above theirs.
    fn whole_run(&mut self) {
        let TracePlan { name, marks, stretches, series, shift, .. } = self.plan;
        let (process, track) =
            self.process(ProcessDescriptor { process_name: Some(name.clone()), ..Default::default() }, 0);
        write_marks(marks, "findings", process, *shift, &mut self.into);
        write_stretches(stretches, process, *shift, &mut self.into);
        let mut counters = Counters::of(track);
        for (order, series) in (0..).zip(series) {
            let mut counter = counters.counter((Group::Training, &series.name), &series.unit, order, &mut self.into);
            for (time, value) in &series.values {
                counter.push(shifted(*time, *shift), Reading::Number(*value), &mut self.into);
            }
        }
    }

    /// A new process: its number, and its track.
    fn process(&mut self, process: ProcessDescriptor, order: i32) -> (i32, u64) {
        self.processes = self.processes.saturating_add(1);
        let pid = self.processes.saturating_mul(PROCESS_STRIDE);
        let process_name = process.process_name.map(|name| clean(&name).into_owned());
        let track = self.into.process(ProcessDescriptor { pid: Some(pid), process_name, ..process }, order);
        (pid, track)
    }

    /// Writes a rank.
    pub fn rank(&mut self, plan: &RankPlan<'_>) -> Result<RankReport, ExportError> {
        let shift = self.plan.shift;
        let timing = Timing { align: plan.align, shift };
        let cleaned = |texts: &[String]| texts.iter().map(|text| clean(text).into_owned()).collect();
        let (process, track) = self.process(
            ProcessDescriptor {
                process_name: Some(plan.name.clone()),
                cmdline: cleaned(&plan.command),
                process_labels: cleaned(&plan.labels),
                ..Default::default()
            },
            plan.order.saturating_add(1),
        );
        write_marks(&plan.marks, "events", process, shift, &mut self.into);
        write_stretches(&plan.stretches, process, shift, &mut self.into);
        let into = std::cell::RefCell::new(&mut self.into);
        let mut spans = SpanSlices::new(plan, self.plan.detail, process, timing);
        let mut memory = MemoryCounters::new(plan, self.plan.detail, track, timing);
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
        write_samples(&data, plan, track, timing, into);
        self.into.packets.check()?;
        Ok(report)
    }

    /// Ends the trace.
    pub fn finish(self) -> Result<Written, ExportError> {
        let bytes = self.into.packets.finish()?;
        Ok(Written { bytes, ..self.into.written })
    }
}

/// Writes the values that were sampled while a rank ran.
fn write_samples(data: &RankData, plan: &RankPlan<'_>, process: u64, timing: Timing<'_>, into: &mut Writing<'_>) {
    let mut samples: Vec<_> = data.counters.rows().collect();
    samples.retain(|sample| plan.window.touches((sample.time_ns, sample.time_ns)));
    samples.sort_by_key(|sample| sample.time_ns);
    let mut counters = Counters::of(process);
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

/// Which clock times are in. No other is told of: each would have to be converted.
fn clock() -> ClockSnapshot {
    let zero = Clock { clock_id: Some(TRACE_CLOCK), timestamp: Some(0) };
    ClockSnapshot { clocks: vec![zero], primary_trace_clock: Some(TRACE_CLOCK) }
}

fn metadata(plan: &TracePlan) -> ChromeEventBundle {
    let entry = |(name, value): &(String, String)| ChromeMetadata {
        name: Some(clean(name).into_owned()),
        string_value: Some(clean(value).into_owned()),
    };
    ChromeEventBundle { metadata: plan.metadata.iter().map(entry).collect() }
}

impl Unit {
    /// A unit of which nothing is known.
    pub const UNKNOWN: Unit = Unit::Named(String::new());
}
