//! What the GPUs did: kernels, whole graphs, copies and sets, each for the process on the device that did it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    super::{
        profile::{Activity, NamedRanges, Profile},
        sqlite::{Database, Row, TableColumn},
    },
    copy_name::{copy_name, set_name},
    process::Process,
    texts::text,
};
use crate::{
    ids::{Correlation, NameId, Nanos, Stream},
    kernels::KernelKind,
    tables::Span,
    vocabulary::SpanKind,
};

pub(super) const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
pub(super) const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
pub(super) const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
pub(super) const SETS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";

/// How many ranks one machine may have. A damaged file has one for each row.
const MOST_RANKS: usize = 1024;

/// What every activity says of itself.
const COMMON: [TableColumn<'static>; 6] = [
    TableColumn::Value("start"),
    TableColumn::Value("end"),
    TableColumn::Value("deviceId"),
    TableColumn::Value("streamId"),
    TableColumn::Value("correlationId"),
    TableColumn::Value("globalPid"),
];

/// A process on a device; in the order of the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) device: u32,
    pub(super) process: Process,
}

/// What is known of one rank.
#[derive(Default)]
pub(super) struct RankRows {
    pub(super) profile: Profile,
    /// The ranges that its process named.
    pub(super) ranges: NamedRanges,
    /// What ties its activities to the calls that launched them.
    pub(super) launched_by: HashSet<u64>,
    /// What kernels of a name communicate, if they do.
    communicating: HashMap<NameId, Option<SpanKind>>,
}

/// The ranks of a session.
#[derive(Default)]
pub(super) struct Ranks {
    pub(super) all: BTreeMap<Place, RankRows>,
    /// Rows that do not say when or where they were.
    pub(super) unreadable: u64,
    /// Copies and sets of processes that ran nothing else.
    pub(super) copies_of_others: u64,
    /// Graphs of which it is not known which kernels they ran.
    pub(super) whole_graphs: u64,
}

impl Ranks {
    /// Reads all activities. `sole` is the process whose they are if they do not say.
    pub(super) fn of(database: &mut Database, sole: Process) -> Ranks {
        let mut ranks = Ranks::default();
        let named = ["demangledName", "shortName", "mangledName", "name"];
        let name = named.into_iter().find(|name| database.has_column(KERNELS, name)).unwrap_or("name");
        database.scan(KERNELS, &with(&[text(name)]), |row| {
            let name = row.text(6);
            ranks.compute(row, sole, name.as_deref().unwrap_or("(kernel without a name)"), SpanKind::Kernel);
        });
        database.scan(GRAPHS, &with(&[TableColumn::Value("graphId")]), |row| {
            let name = row.integer(6).map_or("CUDA graph".to_owned(), |graph| format!("CUDA graph {graph}"));
            ranks.whole_graphs += 1;
            ranks.compute(row, sole, &name, SpanKind::Kernel);
        });
        let of_copy = ["bytes", "copyKind", "srcKind", "dstKind"].map(TableColumn::Value);
        let has_kernels = !ranks.all.is_empty();
        database.scan(COPIES, &with(&of_copy), |row| {
            let name = copy_name(row.number(7), row.number(8), row.number(9));
            ranks.copy(row, sole, &name, SpanKind::Copy, has_kernels);
        });
        database.scan(SETS, &with(&["bytes", "memKind"].map(TableColumn::Value)), |row| {
            ranks.copy(row, sole, &set_name(row.number(7)), SpanKind::Set, has_kernels);
        });
        ranks
    }

    /// The ranks of a process.
    pub(super) fn of_process(&mut self, process: Process) -> impl Iterator<Item = &mut RankRows> {
        self.all.iter_mut().filter(move |(place, _)| place.process == process).map(|(_, rank)| rank)
    }

    fn compute(&mut self, row: &Row<'_>, sole: Process, name: &str, kind: SpanKind) {
        let Some(seen) = Seen::of(row, sole).filter(|seen| self.has_room(seen.place)) else {
            self.unreadable += 1;
            return;
        };
        let rank = self.all.entry(seen.place).or_default();
        let name_id = rank.profile.names.id(name);
        let communicating = rank.communicating.entry(name_id).or_insert_with(|| KernelKind::communication(name));
        let kind = communicating.unwrap_or(kind);
        rank.take(seen, kind, name_id, None);
    }

    /// Takes a copy or a set. A rank is where kernels ran, if any did: what a process copies on other devices is its own, too.
    fn copy(&mut self, row: &Row<'_>, sole: Process, name: &str, kind: SpanKind, has_kernels: bool) {
        let Some(seen) = Seen::of(row, sole).filter(|seen| has_kernels || self.has_room(seen.place)) else {
            self.unreadable += 1;
            return;
        };
        let bytes = row.number(6);
        let rank = if self.all.contains_key(&seen.place) || !has_kernels {
            Some(self.all.entry(seen.place).or_default())
        } else {
            self.of_process(seen.place.process).next()
        };
        let Some(rank) = rank else {
            self.copies_of_others += 1;
            return;
        };
        let name = rank.profile.names.id(name);
        rank.take(seen, kind, name, bytes);
    }

    fn has_room(&self, place: Place) -> bool {
        self.all.len() < MOST_RANKS || self.all.contains_key(&place)
    }
}

impl RankRows {
    fn take(&mut self, seen: Seen, kind: SpanKind, name: NameId, bytes: Option<u64>) {
        let Seen { place, start, duration, stream, correlation } = seen;
        self.launched_by.extend(correlation);
        let correlation = correlation.map(Correlation);
        let span = Span { stream, correlation, bytes, ..Span::new(kind, name, start, duration) };
        self.profile.activity(Activity { span, device: Some(place.device), external: None });
    }
}

/// Where and when something ran.
struct Seen {
    place: Place,
    start: Nanos,
    duration: Nanos,
    stream: Option<Stream>,
    correlation: Option<u64>,
}

impl Seen {
    fn of(row: &Row<'_>, sole: Process) -> Option<Seen> {
        let (start, duration) = row.times(0, 1)?;
        let process = row.integer(5).map_or(sole, Process::of);
        let place = Place { device: row.number(2)?, process };
        Some(Seen { place, start, duration, stream: row.number(3).map(Stream), correlation: row.number(4) })
    }
}

fn with(more: &[TableColumn<'static>]) -> Vec<TableColumn<'static>> {
    [&COMMON, more].concat()
}
