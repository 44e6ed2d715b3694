//! The files of the tables that grow with time.

use std::path::Path;

use crate::{
    error::TraceError,
    format::encode::Encoder,
    rank_info::Written,
    table_file::TableFile,
    tables::{CounterSamples, MemoryEvents, Spans, Table},
};

/// The files of the tables that grow with time.
pub(crate) struct TimedTables {
    pub(crate) spans: TableFile<Spans>,
    pub(crate) memory: TableFile<MemoryEvents>,
    pub(crate) counters: TableFile<CounterSamples>,
}

impl TimedTables {
    /// Makes them; their first rows have these numbers.
    pub(crate) fn create(directory: &Path, encoder: &mut Encoder, first: Written) -> Result<TimedTables, TraceError> {
        let spans = TableFile::create(directory.join(Spans::FILE), encoder, first.spans)?;
        TimedTables::beside(spans, directory, encoder, first)
    }

    /// Makes those that go with one that is there.
    pub(crate) fn beside(
        spans: TableFile<Spans>,
        directory: &Path,
        encoder: &mut Encoder,
        first: Written,
    ) -> Result<TimedTables, TraceError> {
        Ok(TimedTables {
            spans,
            memory: TableFile::create(directory.join(MemoryEvents::FILE), encoder, first.memory)?,
            counters: TableFile::create(directory.join(CounterSamples::FILE), encoder, first.counters)?,
        })
    }

    pub(crate) fn flush(&mut self, encoder: &mut Encoder) -> Result<(), TraceError> {
        self.spans.flush(encoder)?;
        self.memory.flush(encoder)?;
        self.counters.flush(encoder)
    }

    pub(crate) fn end(&mut self) -> Result<(), TraceError> {
        self.spans.end()?;
        self.memory.end()?;
        self.counters.end()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.spans.bytes + self.memory.bytes + self.counters.bytes
    }

    /// How many rows there are, and were before them.
    pub(crate) fn rows(&self) -> Written {
        Written { spans: self.spans.rows, memory: self.memory.rows, counters: self.counters.rows, strings: 0 }
    }
}
