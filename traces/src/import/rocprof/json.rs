//! rocprofv3's JSON: one file for each process, with what its GPUs did and which calls launched that.
//!
//! Each GPU of a process that ran kernels is a rank. Times are of the host's own clock, which counts from when it was started.

use std::{
    fs::File,
    io::BufReader,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use hashbrown::{HashMap, HashSet};
use serde::de::DeserializeSeed;

use super::{
    super::{
        ImportedRank,
        device_work::{DeviceWork, kernel_name},
        profile::{Activity, Call, OperatorCall, OptionalNumber, Profile, ShapeId, TrainingContext, assemble},
        tool_run::ToolRun,
        unpacked,
    },
    document::{Agent, ApiCall, ProfiledProcess, Results},
};
use crate::{
    clock::ClockRecord,
    error::{ImportError, TraceError},
    ids::{Correlation, Rank, Stream},
    loss::Loss,
    notes::{CollectorNotes, CollectorSource, PeakFrom},
    rank_info::{Device, RankInfo, State},
    run_info::{RunInfo, RunSource},
    tables::Span,
    vocabulary::SpanKind,
    window::Window,
};

/// The key that all of it stands under, and how far into a file it is looked for.
const ROOT: &[u8] = b"\"rocprofiler-sdk-tool\"";
const LONGEST_START: usize = 4 << 10;

/// No process uses more GPUs.
const MOST_GPUS: usize = 64;

/// What bytes become objects, no more than this at once.
const BUFFER: usize = 256 << 10;

/// Whether a file that begins so may be one; reading it tells for sure.
pub(crate) fn may_be_results(head: &[u8]) -> bool {
    let start = &head[..head.len().min(LONGEST_START)];
    start.trim_ascii_start().starts_with(b"{") && memchr::memmem::find(start, ROOT).is_some()
}

/// Reads a file.
pub(crate) fn read(path: &Path, file: File) -> Result<ToolRun, TraceError> {
    let length = file.metadata().map_err(TraceError::io("look at", path))?.len();
    let (reader, taken) = unpacked::open(Arc::new(file)).map_err(TraceError::io("read", path))?;
    let mut document = Results::default();
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, reader));
    // What came before an error was read.
    let reason =
        document.deserialize(&mut reader).and_then(|()| reader.end()).err().map(|error| match error.is_eof() {
            true => "it is truncated".to_owned(),
            false => format!("it is damaged: {error}"),
        });
    let missing = reason.as_ref().map(|_| length.saturating_sub(taken.load(Ordering::Relaxed)).max(1));
    let mut ranks: Vec<ImportedRank> = Vec::new();
    for process in &document.processes {
        for agent in process.gpus().take(MOST_GPUS) {
            let rank = Rank(ranks.len() as u32);
            ranks.push(rank_of(rank, path, process, agent, reason.as_deref()));
        }
    }
    let Some(first) = ranks.first_mut() else {
        let what = match reason {
            Some(reason) => {
                format!("a file of rocprofv3 without kernels: {reason}; copy it again, or let rocprofv3 finish")
            }
            None => "a file of rocprofv3 without kernels; record it with --kernel-trace".to_owned(),
        };
        return Err(ImportError::NotATrace { path: path.to_owned(), what }.into());
    };
    let unreadable = document.processes.iter().map(|process| process.unreadable).sum();
    first.loss += Loss { unreadable_bytes: missing.unwrap_or(0), unreadable_events: unreadable, ..Loss::default() };
    let info = RunInfo {
        host: first.info.host.clone(),
        command: document.processes.first().map(|process| process.metadata.command.clone()).unwrap_or_default(),
        ..RunInfo::of_tool(RunSource::Rocprof, String::new(), 0)
    };
    Ok(ToolRun { path: path.to_owned(), info, rank: None, ranks })
}

/// What a GPU did for a process.
fn rank_of(rank: Rank, path: &Path, process: &ProfiledProcess, agent: u64, reason: Option<&str>) -> ImportedRank {
    let mut profile = Profile::default();
    kernels(&mut profile, process, agent);
    copies(&mut profile, process, agent);
    let launched: HashSet<u64> =
        profile.rows.activities.iter().filter_map(|activity| activity.span.correlation).map(|id| id.0).collect();
    for call in process.calls.iter().filter(|call| launched.contains(&call.correlation)) {
        let name = profile.names.id(process.operation(call.kind, call.operation).unwrap_or("a call of the driver"));
        let ApiCall { correlation, start, duration, thread, .. } = *call;
        profile.call(Call { correlation, start, duration, thread, name });
    }
    for call in &process.collectives {
        let name = profile.called.operator(process.operation(call.kind, call.operation).unwrap_or("a collective"));
        let ApiCall { start, duration, thread, .. } = *call;
        let (shapes, forward_thread) = (ShapeId::NONE, None);
        let (external, node) = (OptionalNumber::default(), OptionalNumber::default());
        profile.operator(OperatorCall { start, duration, thread, name, shapes, external, node, forward_thread });
    }
    for marker in process.markers.iter().filter(|marker| marker.duration.0 > 0) {
        if let Some(message) = process.messages.get(&marker.correlation) {
            let place = TrainingContext::named(message);
            profile.annotation(marker.thread, marker.start, marker.duration, place, message);
        }
    }
    let loss = Loss { dropped_events: profile.rows.dropped, ..Loss::default() };
    let state = if reason.is_some() { State::Interrupted } else { State::Complete };
    let mut info = rank_info(rank, path, process, agent);
    info.reason = reason.map(str::to_owned);
    ImportedRank { info, state, data: assemble(profile, Window::ALL), loss }
}

fn kernels(profile: &mut Profile, process: &ProfiledProcess, agent: u64) {
    let mut work = DeviceWork::default();
    // A kernel has one name, which is long.
    let mut named = HashMap::new();
    for dispatch in process.dispatches.iter().filter(|dispatch| dispatch.agent == agent) {
        let (name, kind) = *named.entry(dispatch.kernel).or_insert_with(|| {
            let text = process.symbols.get(&dispatch.kernel).map_or("an unknown kernel", String::as_str);
            let text = kernel_name(text);
            let name = profile.names.id(text);
            (name, work.of_kernel(name, text))
        });
        let span = Span {
            stream: dispatch.stream.map(Stream),
            correlation: dispatch.correlation.map(Correlation),
            ..Span::new(kind, name, dispatch.start, dispatch.duration)
        };
        profile.activity(Activity { span, device: None, external: None });
    }
}

/// The copies from and to a GPU. One between two GPUs is the work of the one that it goes to.
fn copies(profile: &mut Profile, process: &ProfiledProcess, agent: u64) {
    let is_gpu = |agent: u64| process.agents.get(&agent).is_some_and(|agent| agent.is_gpu);
    for copy in &process.copies {
        let worker = if is_gpu(copy.to) { copy.to } else { copy.from };
        if worker != agent {
            continue;
        }
        let name = profile.names.id(match (is_gpu(copy.from), is_gpu(copy.to)) {
            (true, true) => "Memcpy DtoD",
            (true, false) => "Memcpy DtoH",
            (false, true) => "Memcpy HtoD",
            (false, false) => "Memcpy HtoH",
        });
        let span = Span {
            stream: copy.stream.map(Stream),
            correlation: copy.correlation.map(Correlation),
            bytes: copy.bytes,
            ..Span::new(SpanKind::Copy, name, copy.start, copy.duration)
        };
        profile.activity(Activity { span, device: None, external: None });
    }
}

fn rank_info(rank: Rank, path: &Path, process: &ProfiledProcess, agent: u64) -> RankInfo {
    let host = Some(&process.metadata.host).filter(|host| !host.is_empty()).cloned().unwrap_or("unknown".into());
    // It says no time of day.
    let clock = ClockRecord { source: format!("CLOCK_BOOTTIME of {host}"), snapshots: Vec::new() };
    let agent = process.agents.get(&agent);
    let device = agent.map(|Agent { name, memory_bytes, .. }| Device {
        name: name.clone(),
        memory_bytes: *memory_bytes,
        peak_flops: stepscope_plan::Device::named(name).ok().map(|device| device.peaks.bf16),
    });
    let collector = CollectorNotes {
        source: Some(CollectorSource::Rocprof),
        file: Some(path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())),
        device: agent.and_then(|agent| agent.number),
        peak: device.as_ref().and_then(|device| device.peak_flops).map(|_| PeakFrom::DataSheetInBf16),
        ..CollectorNotes::default()
    };
    RankInfo { host, pid: process.metadata.pid, device, collector, ..RankInfo::elsewhere(rank, clock) }
}

impl ProfiledProcess {
    /// The GPUs that ran kernels, in order.
    fn gpus(&self) -> impl Iterator<Item = u64> {
        let mut gpus: Vec<u64> =
            self.dispatches.iter().map(|dispatch| dispatch.agent).collect::<HashSet<_>>().into_iter().collect();
        gpus.sort_by_key(|gpu| (self.agents.get(gpu).and_then(|agent| agent.number), *gpu));
        gpus.into_iter()
    }
}
