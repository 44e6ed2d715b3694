//! A rank of another tool's, as tables.

use crate::{
    ids::Nanos,
    loss::Loss,
    rank_data::RankData,
    rank_info::{RankInfo, State},
    tables::Table,
    window::Window,
};

/// The ranks of a job are profiled together, or one soon after another.
pub(crate) const LONGEST_APART: Nanos = Nanos(3_600_000_000_000);

/// A rank that another tool recorded.
#[derive(Debug)]
pub(crate) struct ImportedRank {
    /// What is known of it.
    pub(crate) info: RankInfo,
    /// What became of the recording.
    pub(crate) state: State,
    /// Its tables.
    pub(crate) data: RankData,
    /// What is lost of it.
    pub(crate) loss: Loss,
}

impl ImportedRank {
    /// A copy of what lies in a window.
    pub(crate) fn within(&self, window: Window) -> ImportedRank {
        let mut data = RankData { names: self.data.names.clone(), ..RankData::default() };
        data.spans.append_within(&self.data.spans, window);
        data.memory.append_within(&self.data.memory, window);
        data.counters.append_within(&self.data.counters, window);
        ImportedRank { info: self.info.clone(), state: self.state, data, loss: self.loss }
    }
}
