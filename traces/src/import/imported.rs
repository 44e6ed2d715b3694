//! A run that another tool recorded: as tables, and as a run directory.

use std::path::Path;

use crate::{
    error::TraceError,
    loss::Loss,
    names::FIRST_NAME,
    rank_data::RankData,
    rank_info::{RankInfo, State},
    run_info::RunInfo,
    tables::CounterSample,
    vocabulary::Counter,
    writer::RankWriter,
};

/// A run that another tool recorded.
#[derive(Debug)]
pub struct Imported {
    /// What kind of source it came from, in a word.
    pub source: &'static str,
    /// What was run, as far as the source tells.
    pub info: RunInfo,
    /// Its ranks, in order.
    pub ranks: Vec<ImportedRank>,
}

/// One rank of it.
#[derive(Debug)]
pub struct ImportedRank {
    /// What is known of the rank.
    pub info: RankInfo,
    /// What became of the recording.
    pub state: State,
    /// Its tables.
    pub data: RankData,
    /// What is lost of it.
    pub loss: Loss,
}

impl Imported {
    /// Writes it as a run directory; refuses one that is a run already.
    pub fn write(&self, run: &Path) -> Result<(), TraceError> {
        self.info.create(run)?;
        self.ranks.iter().try_for_each(|rank| rank.write(run))
    }
}

impl ImportedRank {
    /// Writes it as a rank of a run.
    pub fn write(&self, run: &Path) -> Result<(), TraceError> {
        let mut writer = RankWriter::create(run, self.info.clone())?;
        for (id, text) in self.data.names.iter().filter(|(id, _)| *id >= FIRST_NAME) {
            writer.push_name(id, text)?;
        }
        self.data.spans.rows().try_for_each(|span| writer.push_span(&span))?;
        self.data.memory.rows().try_for_each(|event| writer.push_memory(&event))?;
        self.data.counters.rows().try_for_each(|sample| writer.push_counter(&sample))?;
        if !self.loss.is_none() {
            // A run directory knows of lost events, and what is lost of a file that was cut off is one at least.
            let lost = self.loss.dropped_events.saturating_add(self.loss.unreadable_events).max(1);
            let time_ns = self.data.memory.rows().next_back().map_or(Default::default(), |event| event.time_ns);
            writer.push_counter(&CounterSample {
                time_ns,
                counter: Counter::DroppedEvents.id(),
                value: lost as f64,
            })?;
        }
        match (self.state, &self.info.reason) {
            (State::Complete, _) => writer.finish(),
            (_, reason) => writer.interrupt(reason.as_deref().unwrap_or("the source is not whole")),
        }
    }
}
