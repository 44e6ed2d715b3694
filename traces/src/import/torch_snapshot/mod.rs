//! PyTorch memory snapshots: what `torch.cuda.memory._dump_snapshot` writes, as a run.
//!
//! ```no_run
//! use stepscope_traces::import::torch_snapshot;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let imported = torch_snapshot::read("snapshot.pickle".as_ref(), None)?;
//! println!("{} memory events", imported.ranks[0].data.memory.len());
//! imported.write("runs/imported".as_ref())?;
//! # Ok(())
//! # }
//! ```
//!
//! - Nothing of the file is run (`pickle`).
//! - A block counts from its allocation until its memory can be handed out again, with the bytes that were asked for.
//!   The allocator rounds up; what it adds is part of what is reserved and not allocated.
//! - PyTorch keeps the newest events only. What there must have been before them is there from the beginning (`lives`,
//!   `ranges`).
//! - What a block is for is inferred (`category` has the rules), and the rank says so.
//! - Times are microseconds since 1970, here in nanoseconds; where events have none, their order is their time.
//! - A device is a rank: what a rank has allocated is in one device's memory.
//! - A file that was cut off gives the events that are there. What there was before them, and never came back, is then
//!   not known, since the end of the history is not.

mod annotations;
mod category;
mod document;
mod error;
mod frame;
mod lives;
mod passes;
mod pickle;
mod ranges;
mod records;
mod tables;

use std::{
    io::{Read, Seek},
    path::Path,
};

use chrono::{DateTime, SecondsFormat};

use super::{Imported, ImportedRank};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    format::SCHEMA_VERSION,
    ids::{Nanos, Rank},
    json_file::open_regular,
    loss::Loss,
    rank_info::{RankInfo, State},
    run_info::RunInfo,
};

use annotations::Stretch;
use document::{DeviceHistory, Document, NoDocument};
use tables::DeviceTables;

pub use error::{PickleError, SnapshotError};

/// The word for this kind of source.
pub const SOURCE: &str = "torch-snapshot";

/// Whether a file that begins so may be a memory snapshot; reading it tells for sure.
pub fn may_be_snapshot(head: &[u8]) -> bool {
    pickle::begins_like_a_pickle(head)
}

/// Reads a snapshot. The file does not say whose it is: without a rank it is the one that the file's name has after
/// `rank`, or else the first. The next devices of a process that uses several are the next ranks.
pub fn read(path: &Path, rank: Option<Rank>) -> Result<Imported, SnapshotError> {
    let io = |source| SnapshotError::Io { path: path.to_owned(), source };
    let something_else = |what: String| SnapshotError::SomethingElse { path: path.to_owned(), what };
    let mut file = open_regular(path).map_err(io)?;
    let mut head = Vec::new();
    file.by_ref().take(16).read_to_end(&mut head).map_err(io)?;
    if !may_be_snapshot(&head) {
        return Err(something_else(kind_of_file(&head).to_owned()));
    }
    file.rewind().map_err(io)?;
    let document = Document::read(file).map_err(|reason| match reason {
        NoDocument::Pickle(PickleError::Io(source)) => io(source),
        NoDocument::Pickle(source) => SnapshotError::Pickle { path: path.to_owned(), source },
        NoDocument::SomethingElse(what) => something_else(what),
        NoDocument::CutShort => SnapshotError::CutShort { path: path.to_owned() },
    })?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let first = rank.or_else(|| rank_in_name(&stem)).unwrap_or(Rank(0));
    Ok(imported(&document, stem, first))
}

/// What a file is that is no pickle, by its first bytes.
fn kind_of_file(head: &[u8]) -> &'static str {
    match head {
        [] => "empty",
        [b'P', b'K', 3, 4, ..] => "a zip archive, such as torch.save writes",
        [0x1f, 0x8b, ..] => "compressed with gzip, as traces of the PyTorch profiler are",
        [b'{' | b'[', ..] => "a text such as JSON, as traces of the PyTorch profiler are",
        _ => "no pickle of protocol 2 to 5",
    }
}

/// The number after `rank` in a name.
fn rank_in_name(name: &str) -> Option<Rank> {
    let (_, after) = name.rsplit_once("rank")?;
    let after = after.trim_start_matches(['-', '_']);
    let digits = after.find(|c: char| !c.is_ascii_digit()).map_or(after, |end| &after[..end]);
    digits.parse().ok().map(Rank)
}

fn imported(document: &Document, name: String, first: Rank) -> Imported {
    let only_device = document.devices.len() == 1;
    let mut began = None;
    let ranks = document.devices.iter().enumerate().map(|(index, (device, history))| {
        let stretches = Stretch::all(&document.annotations, *device, only_device);
        let tables = DeviceTables::of(history, &stretches);
        began = began.or(tables.began);
        let rank = Rank(first.0.saturating_add(index as u32));
        imported_rank(rank, *device, history, tables, document.missing_bytes)
    });
    let ranks = ranks.collect();
    let started = DateTime::from_timestamp_nanos(began.unwrap_or(0)).to_rfc3339_opts(SecondsFormat::Millis, true);
    let info = RunInfo {
        schema: SCHEMA_VERSION,
        stepscope: env!("CARGO_PKG_VERSION").into(),
        name,
        started,
        command: Vec::new(),
        directory: String::new(),
        host: "unknown".into(),
        git: None,
        world_size: None,
        model: None,
        layout: None,
        groups: Vec::new(),
        configuration: [("source".to_owned(), SOURCE.into())].into_iter().collect(),
    };
    Imported { source: SOURCE, info, ranks }
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
    let mut note = |key: &str, value: String| info.collector.insert(key.into(), value.into());
    note("source", SOURCE.into());
    note("memory_categories", "inferred".into());
    note("device", device.to_string());
    note("blocks_from_before", tables.blocks_from_before.to_string());
    if let Some(bytes) = tables.rounding_bytes {
        note("rounding_bytes_at_end", bytes.to_string());
    }
    for (key, count) in [("out_of_memory", tables.out_of_memory), ("unknown_events", tables.unknown_events)] {
        if count > 0 {
            note(key, count.to_string());
        }
    }
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
