//! A whole export, as the ranks of a run.

use std::{collections::BTreeMap, path::Path};

use stepscope_plan::text;

use super::{
    super::{ImportedRank, profile::assemble, sqlite::Database, tool_run::ToolRun},
    activities::{COPIES, GRAPHS, KERNELS, Place, RankRows, Ranks, SETS},
    calls::{CALLS, sole_process, take_calls},
    metrics::{GpuMetrics, METRICS},
    ranges::{NvtxRanges, RANGES},
    session::Session,
};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::TraceError,
    ids::{Nanos, Rank},
    loss::Loss,
    notes::{CollectorNotes, CollectorSource, FailedSources, PeakFrom, PhasesFrom, SequencesFrom},
    rank_info::{RankInfo, State},
    run_info::{RunInfo, RunSource},
    topology::Topology,
    window::Window,
};

/// Tables that every export has some of.
const OWN: [&str; 8] =
    [KERNELS, COPIES, SETS, GRAPHS, CALLS, RANGES, "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT"];

/// What reports begin with, which only Nsight Systems reads; it had another name once.
const REPORT: &[u8] = b"NVIDIA Tegra Pro";

/// Whether a file is a report that was not exported, by its first bytes or its name.
pub(crate) fn is_report(head: &[u8], path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    head.starts_with(REPORT) || matches!(ending, Some("nsys-rep" | "qdrep" | "qdstrm"))
}

/// Whether a database is an export. That of nvprof, which came before, has other texts.
pub(crate) fn is_export(database: &Database) -> bool {
    OWN.iter().any(|table| database.has(table)) && !database.has("StringTable")
}

/// Reads an export.
pub(crate) fn read(mut database: Database) -> Result<ToolRun, TraceError> {
    let session = Session::of(&mut database);
    let sole = sole_process(&mut database);
    let mut ranks = Ranks::of(&mut database, sole);
    let has_activity = !ranks.all.is_empty();
    if !has_activity {
        ranks.all.insert(Place::default(), RankRows::default());
    }
    take_calls(&mut database, &mut ranks);
    let ranges = NvtxRanges::of(&mut database, &mut ranks);
    let metrics = GpuMetrics::of(&mut database);
    let mut missing = missing(&mut database, &ranks, &ranges, has_activity, &metrics);
    if let Some(damage) = database.damage().filter(|_| !has_activity) {
        // Nothing of it is left.
        return Err(TraceError::io("read", &database.path)(std::io::Error::other(damage.to_owned())));
    }
    let damage = database.damage().map(|damage| format!("it is damaged: {damage}"));
    let mut info = RunInfo::of_tool(RunSource::Nsys, String::new(), session.began.unwrap_or_default());
    info.host = session.host.clone().unwrap_or(info.host);
    info.configuration.extend(session.versions.iter().map(|(name, value)| ((*name).into(), value.as_str().into())));
    info.world_size = ranges.nccl.values().filter_map(|told| told.most_ranks()).max();
    let mut loss = Loss {
        dropped_events: metrics.dropped,
        unreadable_bytes: u64::from(damage.is_some()),
        unreadable_events: ranks.unreadable,
    };
    let mut imported = Vec::new();
    let places: Vec<Place> = ranks.all.keys().copied().collect();
    for ((place, rank), number) in ranks.all.into_iter().zip(0..) {
        let mut profile = rank.profile;
        let own = |(process, thread): &(_, u32)| (*process == place.process).then_some(*thread);
        profile.rows.autograd.extend(session.autograd.iter().filter_map(own));
        let mut info = rank_info(Rank(number), place, &session, &database.path);
        if let Some(told) = ranges.nccl.get(&place.process) {
            let of_process = places.iter().filter(|other| other.process == place.process);
            told.tell(place, &mut profile, of_process.count() == 1);
            info.groups = told.memberships(place);
        }
        profile.rows.move_times(session.began.unwrap_or_default());
        let (dropped, timeless) = (profile.rows.dropped, profile.rows.timeless);
        // What is missing of the whole file is counted once.
        let mut loss = std::mem::take(&mut loss);
        loss += Loss { dropped_events: dropped, unreadable_bytes: 0, unreadable_events: timeless };
        info.collector.failed_sources = Some(std::mem::take(&mut missing)).filter(|missing| !missing.0.is_empty());
        info.reason.clone_from(&damage);
        let state = if damage.is_some() { State::Interrupted } else { State::Complete };
        let mut data = assemble(profile, Window::ALL);
        // Without a list of GPUs, numbers are CUDA's.
        let gpu = session.gpu(place).map_or(i64::from(place.device), |gpu| gpu.id);
        metrics.tell(gpu, session.began.unwrap_or_default(), &mut data);
        imported.push(ImportedRank { info, state, data, loss });
    }
    Ok(ToolRun { path: database.path, info, rank: None, ranks: imported })
}

/// What is not there, or there and not read.
fn missing(
    database: &mut Database,
    ranks: &Ranks,
    ranges: &NvtxRanges,
    has_activity: bool,
    metrics: &GpuMetrics,
) -> FailedSources {
    let mut failed = BTreeMap::new();
    let mut note = |what: &str, why: String| failed.insert(what.to_owned(), why);
    if !has_activity {
        let calls = database.count(CALLS);
        let named: u64 = ranges.counts.values().sum();
        let why = match (named, calls) {
            (0, 0) => "the export has none; record it with --trace=cuda,nvtx".to_owned(),
            _ => format!(
                "the export has none, but {} and {}; record it with --trace=cuda,nvtx",
                text::counted(named, "NVTX range"),
                text::counted(calls, "CUDA call")
            ),
        };
        note("GPU activity", why);
    }
    if ranks.copies_of_others > 0 {
        let count = text::counted(ranks.copies_of_others, "transfer");
        note("copies of other processes", format!("not read; {count} of processes that ran no kernels"));
    }
    if ranks.whole_graphs > 0 {
        let count = text::counted(ranks.whole_graphs, "CUDA graph");
        note("kernels in CUDA graphs", format!("{count} recorded as a whole; use --cuda-graph-trace=node"));
    }
    if ranges.open > 0 {
        let count = text::counted(ranges.open, "range");
        note("NVTX", format!("left out: {count} that had not ended when the recording did"));
    }
    let samples = if metrics.is_empty() { database.count(METRICS) } else { 0 };
    if samples > 0 {
        let count = text::counted(samples, "sample");
        note("GPU metrics", format!("not read; the export has {count}, none of SM, tensor core or DRAM activity"));
    }
    FailedSources(failed)
}

fn rank_info(rank: Rank, place: Place, session: &Session, path: &Path) -> RankInfo {
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let began = session.began.map(Nanos);
    let clock = ClockRecord {
        // All ranks of a session share its clock.
        source: format!("Nsight Systems session in {file}"),
        snapshots: began.map(|began| ClockSnapshot { rank_ns: began, wall_ns: began }).into_iter().collect(),
    };
    let gpu = session.gpu(place);
    let collector = CollectorNotes {
        source: Some(CollectorSource::Nsys),
        file: Some(file),
        device: Some(place.device),
        gpu_uuid: gpu.and_then(|gpu| gpu.uuid.clone()),
        phases: Some(PhasesFrom::KinetoAnnotations),
        sequence: Some(SequencesFrom::Kineto),
        peak: Some(PeakFrom::DataSheetInBf16),
        ..CollectorNotes::default()
    };
    RankInfo {
        host: session.host.clone().unwrap_or_else(|| "unknown".into()),
        topology: Topology { gpu: gpu.map(|gpu| gpu.slot.clone()).unwrap_or_default(), ..Topology::default() },
        pid: place.process.pid(),
        device: gpu.map(|gpu| gpu.device.clone()),
        collector,
        ..RankInfo::elsewhere(rank, clock)
    }
}
