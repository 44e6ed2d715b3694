//! What one rank recorded: all of it, or how much of it.

use crate::{
    ids::Nanos,
    loss::Loss,
    names::Names,
    tables::{CounterSamples, MemoryEvents, Spans, Table},
};

/// What one rank recorded.
#[derive(Debug, Default)]
pub struct RankData {
    /// Timed intervals.
    pub spans: Spans,
    /// What happened to memory.
    pub memory: MemoryEvents,
    /// Sampled values.
    pub counters: CounterSamples,
    /// The texts behind interned names.
    pub names: Names,
}

impl RankData {
    /// Removes everything and keeps the memory, for the next window or the next rank.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.memory.clear();
        self.counters.clear();
        self.names = Names::default();
    }
}

/// What a rank's files hold.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Of the spans table.
    pub spans: TableSurvey,
    /// Of the memory table.
    pub memory: TableSurvey,
    /// Of the counters table.
    pub counters: TableSurvey,
    /// Of the strings table.
    pub strings: TableSurvey,
    /// What is lost.
    pub loss: Loss,
}

impl Survey {
    /// The contents of tables in memory, for a file of this many bytes.
    pub(crate) fn of(data: &RankData, bytes: u64, loss: Loss) -> Survey {
        fn table<T: Table>(table: &T) -> TableSurvey {
            TableSurvey { rows: table.len() as u64, time: table.time_range(), ..TableSurvey::default() }
        }
        let names = data.names.iter().count() as u64;
        Survey {
            // All of them stand in one file.
            spans: TableSurvey { bytes, ..table(&data.spans) },
            memory: table(&data.memory),
            counters: table(&data.counters),
            strings: TableSurvey { rows: names, ..TableSurvey::default() },
            loss,
        }
    }

    /// Whether nothing was recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.rows + self.memory.rows + self.counters.rows == 0
    }
}

/// What one file holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableSurvey {
    /// Rows that can be read.
    pub rows: u64,
    /// Batches that can be read.
    pub batches: u64,
    /// The size of the file.
    pub bytes: u64,
    /// From the first beginning to the last end.
    pub time: Option<(Nanos, Nanos)>,
}
