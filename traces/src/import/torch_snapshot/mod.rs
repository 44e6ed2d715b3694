//! PyTorch memory snapshots: what `torch.cuda.memory._dump_snapshot` writes, as ranks.
//!
//! - Nothing of the file is run (`pickle`).
//! - A block counts as PyTorch counts it: from its allocation until the program gives it back, with the bytes that the
//!   allocator cut off for it (`sizes`).
//! - PyTorch keeps the newest events only. What there must have been before them is there from the beginning (`lives`,
//!   `ranges`).
//! - What a block is for is inferred (`category` has the rules), and the rank says so.
//! - Times are microseconds since 1970, here in nanoseconds; where events have none, their order is their time.
//! - A device is a rank: what a rank has allocated is in one device's memory.
//! - A file that was cut off gives the events that are there. What there was before them, and never came back, is then
//!   not known, since the end of the history is not.

mod annotations;
mod calls;
mod category;
mod document;
mod expandable;
mod followed;
mod frame;
mod lives;
mod out_of_memory;
mod passes;
mod ranges;
mod records;
mod sizes;
mod tables;

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use super::{ImportedRank, pickle};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::{PickleError, SnapshotError},
    ids::{Nanos, Rank},
    loss::Loss,
    notes::{CollectorNotes, CollectorSource, MemoryCategories},
    rank_info::{RankInfo, State},
    run_info::{RunInfo, RunSource},
};

use annotations::Stretch;
use document::{DeviceHistory, Document, NoDocument};
use tables::DeviceTables;

pub use followed::{FollowError, FollowedMemory, Mark, Observation, Taken, TrainingEvent};

/// Whether a file that begins so may be a memory snapshot; reading it tells for sure.
pub(super) fn may_be_snapshot(head: &[u8]) -> bool {
    pickle::begins_like_a_pickle(head)
}

/// A snapshot that was read.
pub(super) struct Snapshot {
    pub(super) path: PathBuf,
    document: Document,
}

impl Snapshot {
    pub(super) fn read(path: &Path, bytes: impl Read) -> Result<Snapshot, SnapshotError> {
        let io = |source| SnapshotError::Io { path: path.to_owned(), source };
        let document = Document::read(bytes).map_err(|reason| match reason {
            NoDocument::Pickle(PickleError::Io(source)) => io(source),
            NoDocument::Pickle(source) => SnapshotError::Pickle { path: path.to_owned(), source },
            NoDocument::SomethingElse(what) => SnapshotError::SomethingElse { path: path.to_owned(), what },
            NoDocument::CutShort => SnapshotError::CutShort { path: path.to_owned() },
        })?;
        Ok(Snapshot { path: path.to_owned(), document })
    }

    /// Its devices as ranks, from this one on: the next devices of a process that uses several are the next ranks.
    pub(super) fn ranks(&self, first: Rank) -> Vec<ImportedRank> {
        let Document { devices, annotations, calls, missing_bytes } = &self.document;
        let of_device = |(rank, (device, history)): (u32, (&u32, &DeviceHistory))| {
            let stretches = Stretch::all(annotations, *device, devices.len() == 1);
            imported_rank(Rank(rank), *device, history, DeviceTables::of(history, &stretches, calls), *missing_bytes)
        };
        let mut ranks: Vec<ImportedRank> = (first.0..).zip(devices).map(of_device).collect();
        // Whose they are is not always said; they are lost once.
        if let Some(rank) = ranks.first_mut() {
            rank.loss.unreadable_events += Stretch::timeless(annotations);
        }
        ranks
    }

    /// When its first event was, in nanoseconds since 1970, where its events say so.
    fn began(&self) -> Option<i64> {
        let first = |history: &DeviceHistory| history.events.first()?.time_us;
        self.document.devices.values().filter_map(first).min().map(|time_us| time_us.saturating_mul(1000))
    }
}

/// What was run, as far as snapshots tell.
pub(super) fn run_info(name: String, snapshots: &[Snapshot]) -> RunInfo {
    let began = snapshots.iter().filter_map(Snapshot::began).min().unwrap_or(0);
    RunInfo::of_tool(RunSource::TorchSnapshot, name, began)
}

fn imported_rank(
    rank: Rank,
    device: u32,
    history: &DeviceHistory,
    tables: DeviceTables,
    missing_bytes: Option<u64>,
) -> ImportedRank {
    let anchor = tables.began.map(|began| ClockSnapshot { rank_ns: Nanos(began), wall_ns: Nanos(began) });
    // Ranks may be of different machines, whose clocks differ.
    let source = anchor.map_or("order of events".to_owned(), |_| format!("CLOCK_REALTIME of rank {rank}"));
    let mut info = RankInfo::elsewhere(rank, ClockRecord { source, snapshots: anchor.into_iter().collect() });
    let if_any = |count: u64| (count > 0).then_some(count);
    info.collector = CollectorNotes {
        source: Some(CollectorSource::TorchSnapshot),
        memory_categories: Some(MemoryCategories::Inferred),
        device: Some(device),
        blocks_from_before: Some(tables.blocks_from_before),
        rounding_bytes_at_end: tables.rounding_bytes,
        out_of_memory: tables.out_of_memory,
        unknown_events: if_any(tables.unknown_events),
        ..CollectorNotes::default()
    };
    let loss = Loss {
        dropped_events: 0,
        unreadable_bytes: missing_bytes.unwrap_or(0),
        unreadable_events: history.unreadable_events,
    };
    let state = if missing_bytes.is_some() { State::Interrupted } else { State::Complete };
    if missing_bytes.is_some() {
        info.reason = Some("the snapshot was cut off".into());
    }
    ImportedRank { info, state, data: tables.data, loss }
}
