//! Reads a dump as a run of one rank.

use std::{fs::File, io::BufReader, path::Path, sync::Arc};

use memchr::memmem;

use super::{
    super::{ImportedRank, pickle, profile::NameBook, rank_name::rank_in_name, tool_run::ToolRun, unpacked},
    dump::{Dump, Entry, NoDump},
    progress::{number, progress},
};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::{ImportError, PickleError, TraceError},
    ids::{Nanos, Rank, Sequence},
    loss::Loss,
    membership::Membership,
    notes::{CollectorNotes, CollectorSource, FailedSources},
    rank_data::RankData,
    rank_info::{RankInfo, State},
    run_info::{RunInfo, RunSource},
    tables::Span,
    vocabulary::SpanKind,
};

/// Keys that a dump has near its beginning, and nothing else has.
const KEYS: [&[u8]; 3] = [b"pg_config", b"collective_seq_id", b"last_enqueued_collective"];

/// What PyTorch calls the group of all ranks.
const WORLD: &str = "default_pg";

/// What is said of a dump of a recorder that was off.
const NONE: &str =
    "the dump has none; set TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE=2000 before PyTorch 2.8)";

/// Whether a file that begins so may be one; reading it tells for sure.
pub(in super::super) fn may_be_dump(head: &[u8]) -> bool {
    let is_json = head.trim_ascii_start().starts_with(b"{") && memmem::find(head, b"\"traceEvents\"").is_none();
    (is_json || pickle::begins_like_a_pickle(head)) && KEYS.iter().any(|key| memmem::find(head, key).is_some())
}

/// Reads a file.
pub(in super::super) fn read(path: &Path, file: File, head: &[u8]) -> Result<ToolRun, TraceError> {
    let (reader, _) = unpacked::open(Arc::new(file)).map_err(TraceError::io("read", path))?;
    let dump = match pickle::begins_like_a_pickle(head) {
        true => Dump::of_pickle(reader),
        false => Dump::of_json(BufReader::new(reader)),
    };
    let dump = dump.map_err(|reason| {
        let what = match reason {
            NoDump::Pickle(PickleError::Io(source)) => return TraceError::io("read", path)(source),
            NoDump::Pickle(error) => format!("a Flight Recorder dump that cannot be read: {error}"),
            NoDump::Json(error) if error.is_io() => return TraceError::io("read", path)(error.into()),
            NoDump::Json(error) if error.is_eof() => "a Flight Recorder dump that is truncated".to_owned(),
            NoDump::Json(error) => format!("a Flight Recorder dump that cannot be read: {error}"),
            NoDump::SomethingElse(what) => what,
        };
        TraceError::from(ImportError::NotATrace { path: path.to_owned(), what })
    })?;
    let rank = rank_of(path, &dump);
    let began = dump.entries.iter().map(|entry| entry.time_created_ns).min().unwrap_or(0);
    // A group is there once it was used.
    let world = dump.header.pg_config.values().find(|config| config.desc == WORLD);
    let world_size = world.and_then(|world| u32::try_from(world.ranks.0.len()).ok());
    let info = RunInfo { world_size, ..RunInfo::of_tool(RunSource::FlightRecorder, String::new(), began) };
    Ok(ToolRun { path: path.to_owned(), info, rank, ranks: vec![imported_rank(rank, &dump)] })
}

/// The rank that a dump is of: as its file is called, unless its groups say otherwise. PyTorch puts the number at the end of the
/// name that it was given.
fn rank_of(path: &Path, dump: &Dump) -> Option<Rank> {
    let at_end = || {
        let name = path.file_name()?.to_str()?;
        let name =
            [".gz", ".json", ".pickle", ".pkl"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
        let digits = name.rfind(|letter: char| !letter.is_ascii_digit()).map_or(name, |before| &name[before + 1..]);
        digits.parse().ok().map(Rank)
    };
    // It is in all of its groups.
    let mut groups = dump.header.pg_config.values().map(|config| &config.ranks.0).filter(|ranks| !ranks.is_empty());
    let Some(first) = groups.next() else { return rank_in_name(path) };
    let mut may_be: Vec<Rank> = first.clone();
    groups.for_each(|ranks| may_be.retain(|rank| ranks.contains(rank)));
    let named = rank_in_name(path).or_else(at_end).filter(|rank| may_be.contains(rank));
    named.or(if let [only] = may_be.as_slice() { Some(*only) } else { None })
}

fn imported_rank(known: Option<Rank>, dump: &Dump) -> ImportedRank {
    let rank = known.unwrap_or(Rank(0));
    let anchor = dump.entries.first().map(|entry| Nanos(entry.time_created_ns));
    let snapshots = anchor.map(|time| ClockSnapshot { rank_ns: time, wall_ns: time }).into_iter().collect();
    let source = format!("CLOCK_REALTIME of rank {rank}");
    let mut info = RankInfo::elsewhere(rank, ClockRecord { source, snapshots });
    info.groups = known.map_or_else(Vec::new, |rank| memberships(rank, dump));
    info.collector = CollectorNotes {
        source: Some(CollectorSource::FlightRecorder),
        in_flight: Some(progress(dump)),
        failed_sources: is_empty(dump).then(|| FailedSources([("collectives".into(), NONE.into())].into())),
        ..CollectorNotes::default()
    };
    let state = if dump.missing_bytes.is_some() { State::Interrupted } else { State::Complete };
    if dump.missing_bytes.is_some() {
        info.reason = Some("the dump was cut off".into());
    }
    let loss = Loss {
        dropped_events: 0,
        unreadable_bytes: dump.missing_bytes.unwrap_or(0),
        unreadable_events: dump.unreadable_entries,
    };
    ImportedRank { info, state, data: ranges(dump), loss }
}

/// Whether nothing was recorded: the recorder has no buffer unless it is given one.
fn is_empty(dump: &Dump) -> bool {
    dump.entries.is_empty() && dump.unreadable_entries == 0 && dump.missing_bytes.is_none()
}

/// The groups that the rank is in.
fn memberships(rank: Rank, dump: &Dump) -> Vec<Membership> {
    let place = |ranks: &[Rank]| ranks.iter().position(|one| *one == rank);
    let groups = dump.header.pg_config.iter().filter_map(|(name, config)| {
        let (index, size) = (place(&config.ranks.0)?, config.ranks.0.len());
        let (index, size) = (Some(u32::try_from(index).ok()?), u32::try_from(size).ok()?);
        let (group, name) = (number(name, config), Some(config.desc.clone()));
        Some(Membership { group, index, size, name, ranks: Vec::new() })
    });
    groups.collect()
}

/// Its operations, as ranges of the host: from when they were asked for until somebody noticed that they were over.
fn ranges(dump: &Dump) -> RankData {
    let over = |entry: &Entry| entry.time_discovered_completed_ns.0.and_then(|time| i64::try_from(time).ok());
    let is_over = |entry: &Entry| over(entry).filter(|time| *time > 0 && entry.is_completed());
    let last = dump.entries.iter().filter_map(|entry| is_over(entry).max(Some(entry.time_created_ns))).max();
    let mut names = NameBook::default();
    let mut spans: Vec<Span> = dump
        .entries
        .iter()
        .map(|entry| {
            let start = Nanos(entry.time_created_ns);
            let end = is_over(entry).or(last).map_or(start, Nanos).max(start);
            let duration = end.0.checked_sub(start.0).map_or(Nanos(0), Nanos);
            let config = dump.header.pg_config.get(&entry.process_group.0);
            Span {
                group: config.map(|config| number(&entry.process_group.0, config)),
                sequence: (!entry.is_p2p).then_some(Sequence(entry.collective_seq_id)),
                ..Span::new(SpanKind::Range, names.id(entry.operation()), start, duration)
            }
        })
        .collect();
    spans.sort_by_key(|span| span.start_ns);
    let mut data = RankData { names: names.into_names(), ..RankData::default() };
    spans.iter().for_each(|span| data.spans.push(span));
    data
}
