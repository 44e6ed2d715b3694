//! Writes a run from any source as a run directory.

use std::path::Path;

use super::{RankDirectory, RankReport, Run};
use crate::{
    error::TraceError,
    ids::Nanos,
    loss::Loss,
    names::FIRST_NAME,
    notes::{CollectorNote, LostOfTrace},
    rank_info::{RankInfo, State, WrittenState},
    tables::CounterSample,
    vocabulary::Counter,
    window::Window,
    writer::RankWriter,
};

impl Run {
    /// Writes the run into a new directory; `progress` is told how many ranks are done.
    pub fn write_to(&self, directory: &Path, progress: &dyn Fn(usize)) -> Result<(), TraceError> {
        self.info.create(directory)?;
        for (done, rank) in (1..).zip(&self.ranks) {
            write_rank(rank, directory)?;
            progress(done);
        }
        Ok(())
    }
}

fn write_rank(rank: &RankDirectory, directory: &Path) -> Result<(), TraceError> {
    let (data, RankReport { info, state, loss, .. }) = rank.read_with_report(Window::ALL)?;
    let reason = info.reason.clone();
    let mut writer = RankWriter::create(directory, RankInfo { state: WrittenState::Recording, written: None, ..info })?;
    for (id, text) in data.names.iter().filter(|(id, _)| *id >= FIRST_NAME) {
        writer.push_name(id, text)?;
    }
    for span in data.spans.rows() {
        writer.push_span(&span)?;
    }
    for event in data.memory.rows() {
        writer.push_memory(&event)?;
    }
    for sample in data.counters.rows() {
        writer.push_counter(&sample)?;
    }
    let begin = data.spans.start_ns.iter().chain(data.memory.time_ns.iter()).next().unwrap_or_default();
    note_loss(&mut writer, loss, begin)?;
    match state {
        State::Complete => writer.finish(),
        _ => writer.interrupt(reason.as_deref().unwrap_or("the source is incomplete")),
    }
}

/// What was lost of the original is lost of its copy, which can be read whole.
fn note_loss(writer: &mut RankWriter, loss: Loss, begin: Nanos) -> Result<(), TraceError> {
    if loss.is_none() {
        return Ok(());
    }
    // What is unreadable is at least one event.
    let events = loss.dropped_events.saturating_add(loss.unreadable_events).max(1);
    writer.note(CollectorNote::LostOfTheTrace(LostOfTrace { events, bytes: loss.unreadable_bytes }));
    writer.push_counter(&CounterSample { time_ns: begin, counter: Counter::DroppedEvents.id(), value: events as f64 })
}
