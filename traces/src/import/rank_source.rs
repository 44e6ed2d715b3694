//! What holds the tables of a rank that another tool recorded.

use std::{
    mem,
    sync::{Arc, atomic::AtomicU64},
};

use super::{ImportedRank, join::take_notes, kineto::KinetoTrace};
use crate::{error::TraceError, rank_data::RankData, rank_info::RankInfo, tables::Spans, window::Window};

/// What holds the tables of a rank that another tool recorded.
#[derive(Debug)]
pub(crate) enum RankSource {
    /// A trace of PyTorch's profiler; where a snapshot of its memory is there too, with that.
    Kineto {
        /// The trace, which is read when it is asked for.
        trace: Box<KinetoTrace>,
        /// The memory.
        memory: Option<Box<ImportedRank>>,
    },
    /// The tables themselves.
    Tables(Box<ImportedRank>),
}

impl RankSource {
    /// Gives a trace the memory of a snapshot of the same rank, with its notes.
    pub(super) fn join(&mut self, info: &mut RankInfo, snapshot: ImportedRank) {
        if let RankSource::Kineto { memory, .. } = self {
            take_notes(info, &snapshot.info);
            *memory = Some(Box::new(snapshot));
        }
    }

    /// Reads what lies in a window, of the rank that this says of itself. Meanwhile `shown` is how many bytes were read.
    pub(crate) fn read(
        &self,
        info: &RankInfo,
        window: Window,
        shown: &Arc<AtomicU64>,
    ) -> Result<ImportedRank, TraceError> {
        match self {
            RankSource::Tables(rank) => Ok(rank.within(window)),
            RankSource::Kineto { trace, memory: None } => trace.read(info.clone(), window, shown),
            RankSource::Kineto { trace, memory: Some(memory) } => {
                let mut rank = trace.read(info.clone(), Window::ALL, shown)?;
                rank.take_memory_of(memory)?;
                Ok(if window == Window::ALL { rank } else { rank.within(window) })
            }
        }
    }

    /// The same, but spans are shown, with names and counters, and not kept: those of a trace piece by piece.
    pub(crate) fn read_in_pieces(
        &self,
        info: &RankInfo,
        window: Window,
        shown: &Arc<AtomicU64>,
        mut spans: impl FnMut(&RankData, &Spans),
    ) -> Result<ImportedRank, TraceError> {
        if let RankSource::Kineto { trace, memory: None } = self {
            return trace.read_in_pieces(info.clone(), window, shown, spans);
        }
        let mut rank = self.read(info, window, shown)?;
        let all = mem::take(&mut rank.data.spans);
        spans(&rank.data, &all);
        Ok(rank)
    }
}
