//! Databases of rocprofv3 (`--output-format rocpd`): one process each, or several that were merged.
//!
//! Tables of a process have its number behind their names. What is launched has the number of the call in the stack of
//! calls. Times are the machine's since it was started, so that the time of day is not known.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use stepscope_plan::text;

use super::super::{
    ImportedRank,
    profile::{Activity, Call, NamedRange, NamedRanges, Profile, assemble},
    sqlite::{Database, Lookup, Row, TableColumn},
    tool_run::ToolRun,
};
use crate::{
    clock::ClockRecord,
    error::{ImportError, TraceError},
    ids::{Correlation, NameId, Rank, Stream},
    kernels::KernelKind,
    loss::Loss,
    notes::{CollectorNotes, CollectorSource, FailedSources, PeakFrom, PhasesFrom, SequencesFrom},
    rank_info::{Device, RankInfo, State},
    run_info::{RunInfo, RunSource},
    tables::Span,
    vocabulary::SpanKind,
    window::Window,
};

const KERNELS: &str = "rocpd_kernel_dispatch";
const COPIES: &str = "rocpd_memory_copy";
const REGIONS: &str = "rocpd_region";

/// How many ranks, agents, processes and threads there may be.
const MOST_RANKS: usize = 1024;
const MOST_KEPT: usize = 1 << 16;

/// Whether a database is one of rocprofv3's.
pub(crate) fn is_rocpd(database: &Database) -> bool {
    database.tables().any(|table| table.starts_with(KERNELS))
}

/// Reads a database.
pub(crate) fn read(mut database: Database) -> Result<ToolRun, TraceError> {
    let suffixes: Vec<String> =
        database.tables().filter_map(|table| table.strip_prefix(KERNELS)).map(str::to_owned).collect();
    if !suffixes.iter().any(|suffix| database.has_column(&format!("{KERNELS}{suffix}"), "start")) {
        let what = "a rocpd database of a version that stepscope does not read".into();
        return Err(ImportError::NotATrace { path: database.path, what }.into());
    }
    let mut found = RocpdRanks::default();
    for suffix in &suffixes {
        found.take(&mut database, suffix);
    }
    if let Some(damage) = database.damage().filter(|_| found.ranks.is_empty()) {
        return Err(TraceError::io("read", &database.path)(std::io::Error::other(damage.to_owned())));
    }
    let damage = database.damage().map(|damage| format!("it is damaged: {damage}"));
    let mut info = RunInfo::of_tool(RunSource::Rocprof, String::new(), 0);
    info.host = found.host.clone().unwrap_or(info.host);
    let mut missing = FailedSources::default();
    if found.ranks.is_empty() {
        let said = text::counted(found.regions, "region");
        let why = format!("the database has none, but {said} of the host; record it with --kernel-trace");
        missing.0.insert("GPU activity".into(), why);
        found.ranks.insert(GpuProcess::default(), RocpdRank::default());
    }
    let file = database.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let unreadable_bytes = u64::from(damage.is_some());
    let mut loss = Loss { dropped_events: 0, unreadable_bytes, unreadable_events: found.unreadable };
    let mut ranks = Vec::new();
    for ((place, mut rank), number) in found.ranks.into_iter().zip(0..) {
        rank.ranges.number_steps(&mut rank.profile);
        let mut loss = std::mem::take(&mut loss);
        loss.dropped_events += rank.profile.rows.dropped;
        loss.unreadable_events += rank.profile.rows.timeless;
        let source = format!("clock of the machine in {file}");
        let clock = ClockRecord { source, snapshots: Vec::new() };
        let collector = CollectorNotes {
            source: Some(CollectorSource::Rocprof),
            file: Some(file.clone()),
            device: Some(place.device),
            phases: Some(PhasesFrom::KinetoAnnotations),
            sequence: Some(SequencesFrom::Kineto),
            peak: Some(PeakFrom::DataSheetInBf16),
            failed_sources: Some(std::mem::take(&mut missing)).filter(|missing| !missing.0.is_empty()),
            ..CollectorNotes::default()
        };
        let info = RankInfo {
            host: info.host.clone(),
            pid: place.pid,
            device: rank.device,
            collector,
            reason: damage.clone(),
            ..RankInfo::elsewhere(Rank(number), clock)
        };
        let state = if damage.is_some() { State::Interrupted } else { State::Complete };
        ranks.push(ImportedRank { info, state, data: assemble(rank.profile, Window::ALL), loss });
    }
    Ok(ToolRun { path: database.path, info, rank: None, ranks })
}

/// A process on a GPU; in the order of the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GpuProcess {
    device: u32,
    pid: u32,
}

#[derive(Default)]
struct RocpdRank {
    profile: Profile,
    ranges: NamedRanges,
    device: Option<Device>,
    launched_by: HashSet<u64>,
    /// What kernels of a name communicate, if they do.
    communicating: HashMap<NameId, Option<SpanKind>>,
}

/// What the tables of all processes have in them.
#[derive(Default)]
struct RocpdRanks {
    ranks: BTreeMap<GpuProcess, RocpdRank>,
    host: Option<String>,
    unreadable: u64,
    regions: u64,
}

/// What the rows of one process refer to.
#[derive(Default)]
struct Known {
    /// The GPUs, by the numbers of their agents.
    gpus: HashMap<i64, (u32, Device)>,
    pids: HashMap<i64, u32>,
    threads: HashMap<i64, u32>,
}

/// What an event says besides: the text of a range.
#[derive(Deserialize)]
struct EventData {
    message: Option<String>,
}

impl RocpdRanks {
    /// Takes the tables with this ending.
    fn take(&mut self, database: &mut Database, suffix: &str) {
        let table = |name: &str| format!("{name}{suffix}");
        let lookup = |name: &str, value| Lookup { table: table(name).into(), id: "id", value };
        let known = Known::of(database, suffix);
        database.scan(&table("rocpd_info_node"), &[TableColumn::Value("hostname")], |row| {
            self.host = self.host.take().or_else(|| row.text(0).map(|host| host.into_owned()));
        });
        let (stack, data) = (lookup("rocpd_event", "stack_id"), lookup("rocpd_event", "extdata"));
        let category = lookup("rocpd_event", "category_id");
        let (strings, symbols) = (lookup("rocpd_string", "string"), lookup("rocpd_info_kernel_symbol", "display_name"));
        let columns = [
            TableColumn::Value("start"),
            TableColumn::Value("end"),
            TableColumn::Value("pid"),
            TableColumn::Value("agent_id"),
            TableColumn::Value("stream_id"),
            TableColumn::In("event_id", &stack),
            TableColumn::In("kernel_id", &symbols),
        ];
        database.scan(&table(KERNELS), &columns, |row| {
            let name = row.text(6);
            let agent = row.integer(3);
            self.activity(
                row,
                &known,
                agent,
                SpanKind::Kernel,
                name.as_deref().unwrap_or("(kernel without a name)"),
                None,
            );
        });
        let columns = [
            TableColumn::Value("start"),
            TableColumn::Value("end"),
            TableColumn::Value("pid"),
            TableColumn::Value("dst_agent_id"),
            TableColumn::Value("stream_id"),
            TableColumn::In("event_id", &stack),
            TableColumn::In("name_id", &strings),
            TableColumn::Value("src_agent_id"),
            TableColumn::Value("size"),
        ];
        database.scan(&table(COPIES), &columns, |row| {
            // To the processor's memory it is the GPU's that it comes from.
            let ends = [row.integer(3), row.integer(7)].into_iter().flatten();
            let agent = ends.clone().find(|agent| known.gpus.contains_key(agent));
            let name = copy_name(row.text(6).as_deref().unwrap_or_default());
            self.activity(row, &known, agent, SpanKind::Copy, name, row.number(8));
        });
        let names = names_of(database, &strings);
        let columns = [
            TableColumn::Value("start"),
            TableColumn::Value("end"),
            TableColumn::Value("pid"),
            TableColumn::Value("tid"),
            TableColumn::In("name_id", &strings),
            TableColumn::In("event_id", &stack),
            TableColumn::In("event_id", &category),
            TableColumn::In("event_id", &data),
        ];
        database.scan(&table(REGIONS), &columns, |row| {
            let category = row.integer(6).and_then(|id| names.get(&id));
            self.region(row, &known, category.is_some_and(|name| name.contains("MARKER")));
        });
    }

    fn activity(
        &mut self,
        row: &Row<'_>,
        known: &Known,
        agent: Option<i64>,
        kind: SpanKind,
        name: &str,
        bytes: Option<u64>,
    ) {
        let gpu = agent.and_then(|agent| known.gpus.get(&agent));
        let (Some((start, duration)), Some((device, described)), Some(pid)) =
            (row.times(0, 1), gpu, row.integer(2).and_then(|pid| known.pid(pid)))
        else {
            self.unreadable += 1;
            return;
        };
        let place = GpuProcess { device: *device, pid };
        if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&place) {
            self.unreadable += 1;
            return;
        }
        let rank = self.ranks.entry(place).or_default();
        rank.device.get_or_insert_with(|| described.clone());
        let name_id = rank.profile.names.id(name);
        let kind = match kind {
            SpanKind::Kernel => {
                let known = rank.communicating.entry(name_id).or_insert_with(|| KernelKind::communication(name));
                known.unwrap_or(kind)
            }
            _ => kind,
        };
        let launch: Option<u64> = row.number(5);
        rank.launched_by.extend(launch);
        let (stream, correlation) = (row.number(4).map(Stream), launch.map(Correlation));
        let span = Span { stream, correlation, bytes, ..Span::new(kind, name_id, start, duration) };
        rank.profile.activity(Activity { span, device: Some(*device), external: None });
    }

    fn region(&mut self, row: &Row<'_>, known: &Known, is_marker: bool) {
        self.regions += 1;
        let Some(((start, duration), pid)) = row.times(0, 1).zip(row.integer(2).and_then(|pid| known.pid(pid))) else {
            self.unreadable += 1;
            return;
        };
        let thread = row.integer(3).and_then(|thread| known.threads.get(&thread).copied().or(thread.try_into().ok()));
        let name = row.text(4);
        let name = name.as_deref().unwrap_or("(region without a name)");
        let correlation: Option<u64> = row.number(5);
        let of_process = self.ranks.iter_mut().filter(|(place, _)| place.pid == pid).map(|(_, rank)| rank);
        if is_marker {
            let data = row.text(7).and_then(|data| serde_json::from_str::<EventData>(&data).ok());
            let said = data.and_then(|data| data.message).unwrap_or_else(|| name.to_owned());
            let range = NamedRange { thread, start, duration };
            of_process.for_each(|rank| rank.ranges.take(&mut rank.profile, range, &said));
            return;
        }
        for rank in of_process {
            if let Some(correlation) = correlation.filter(|id| rank.launched_by.contains(id)) {
                let name = rank.profile.names.id(name);
                rank.profile.call(Call { correlation, start, duration, thread, name });
            }
        }
    }
}

impl Known {
    fn of(database: &mut Database, suffix: &str) -> Known {
        let mut known = Known::default();
        let columns = ["id", "type", "type_index", "product_name", "name"].map(TableColumn::Value);
        database.scan(&format!("rocpd_info_agent{suffix}"), &columns, |row| {
            let is_gpu = row.text(1).as_deref() == Some("GPU") && known.gpus.len() < MOST_KEPT;
            if let Some((agent, number)) = row.integer(0).zip(row.number(2)).filter(|_| is_gpu) {
                let name = row.text(3).filter(|name| !name.is_empty()).or_else(|| row.text(4)).unwrap_or_default();
                let peak_flops = stepscope_plan::Device::named(&name).ok().map(|device| device.peaks.bf16);
                let device = Device { name: name.into_owned(), memory_bytes: None, peak_flops };
                known.gpus.insert(agent, (number, device));
            }
        });
        known.pids = numbers(database, &format!("rocpd_info_process{suffix}"), "pid");
        known.threads = numbers(database, &format!("rocpd_info_thread{suffix}"), "tid");
        known
    }

    /// The number of a process; the tables of some versions have it as it is.
    fn pid(&self, id: i64) -> Option<u32> {
        self.pids.get(&id).copied().or_else(|| id.try_into().ok())
    }
}

/// The system's numbers of processes or threads, by those that rows have for them.
fn numbers(database: &mut Database, table: &str, column: &'static str) -> HashMap<i64, u32> {
    let mut numbers = HashMap::new();
    database.scan(table, &[TableColumn::Value("id"), TableColumn::Value(column)], |row| {
        if let Some((id, number)) = row.integer(0).zip(row.number(1)).filter(|_| numbers.len() < MOST_KEPT) {
            numbers.insert(id, number);
        }
    });
    numbers
}

/// The names of categories are among all texts: those in capitals.
fn names_of(database: &mut Database, strings: &Lookup) -> HashMap<i64, String> {
    let mut names = HashMap::new();
    database.scan(&strings.table, &[TableColumn::Value(strings.id), TableColumn::Value(strings.value)], |row| {
        let Some((id, name)) = row.integer(0).zip(row.text(1)) else { return };
        let is_category = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if is_category && names.len() < MOST_KEPT {
            names.insert(id, name.into_owned());
        }
    });
    names
}

/// What a copy is called, in the words of PyTorch's profiler.
fn copy_name(name: &str) -> &'static str {
    match name.trim_start_matches("MEMORY_COPY_") {
        "HOST_TO_DEVICE" => "Memcpy HtoD (Host -> Device)",
        "DEVICE_TO_HOST" => "Memcpy DtoH (Device -> Host)",
        "DEVICE_TO_DEVICE" => "Memcpy DtoD (Device -> Device)",
        "HOST_TO_HOST" => "Memcpy HtoH (Host -> Host)",
        _ => "Memcpy",
    }
}
