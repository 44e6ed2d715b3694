//! A profile as a run: its devices are ranks.

use std::{
    fs::File,
    io::Read,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use stepscope_plan::text;

use super::{
    super::{ImportedRank, profile::assemble, tool_run::ToolRun, unpacked},
    device::{DeviceKind, DeviceProfile, device_of},
    hlo::Programs,
    host::{Host, is_host},
    plane::{Plane, StatName},
    wire::{FieldValue, WireFields},
};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::{ImportError, TraceError},
    ids::{Nanos, Rank},
    loss::Loss,
    notes::{CollectorNotes, CollectorSource, FailedSources, PeakFrom, PhasesFrom},
    rank_info::{Device, RankInfo, State},
    run_info::{RunInfo, RunSource},
    window::Window,
};

/// No host has more devices.
const MOST_DEVICES: usize = 64;
/// How many planes that are not read are named.
const MOST_NAMED: usize = 16;
/// How many times its size a packed profile may have, beside what any may have. Profiles have about ten.
const MOST_UNPACKED: u64 = 64;
const ALWAYS_UNPACKED: u64 = 64 << 20;

/// The plane that says when the profile began, and the one that has compiled programs.
const ENVIRONMENT: &str = "Task Environment";
const PROGRAMS: &str = "/host:metadata";

/// Reads a profile.
pub(crate) fn read(path: &Path, file: File) -> Result<ToolRun, TraceError> {
    let (bytes, cut) = bytes_of(path, file)?;
    let space = Space::of(&bytes);
    let truncated = space.is_cut.then(|| "it is truncated".to_owned());
    let reason = cut.or(truncated);
    let ranks = space.ranks(path, reason.as_deref());
    if ranks.is_empty() {
        let what = space.what_instead(reason.as_deref());
        return Err(ImportError::NotATrace { path: path.to_owned(), what }.into());
    }
    let first = ranks.iter().filter_map(|rank| rank.data.spans.start_ns.iter().next()).map(|start| start.0).min();
    let host = space.host_name();
    let info = RunInfo { host, ..RunInfo::of_tool(RunSource::Xplane, String::new(), first.unwrap_or(space.base)) };
    Ok(ToolRun { path: path.to_owned(), info, rank: None, ranks })
}

/// All bytes of a file, unpacked, and why there are no more where some are missing.
fn bytes_of(path: &Path, file: File) -> Result<(Vec<u8>, Option<String>), TraceError> {
    let io = || TraceError::io("read", path);
    let length = file.metadata().map_err(TraceError::io("look at", path))?.len();
    let (reader, taken) = unpacked::open(Arc::new(file)).map_err(io())?;
    let most = length.saturating_mul(MOST_UNPACKED).max(ALWAYS_UNPACKED);
    let mut bytes = Vec::new();
    let read = reader.take(most).read_to_end(&mut bytes);
    let cut = match read {
        Err(error) if bytes.is_empty() => return Err(io()(error)),
        Err(error) => Some(format!("it cannot be fully decompressed: {error}")),
        Ok(_) if taken.load(Ordering::Relaxed) < length && bytes.len() as u64 == most => {
            Some(format!("it has more than {MOST_UNPACKED} times its size when decompressed"))
        }
        Ok(_) => None,
    };
    Ok((bytes, cut))
}

/// A profile, taken apart into planes.
struct Space<'a> {
    planes: Vec<&'a [u8]>,
    host_names: Vec<String>,
    /// When it began, in nanoseconds since 1970, where it says so.
    base: i64,
    lost: u64,
    is_cut: bool,
}

impl<'a> Space<'a> {
    fn of(bytes: &'a [u8]) -> Space<'a> {
        let mut space = Space { planes: Vec::new(), host_names: Vec::new(), base: 0, lost: 0, is_cut: false };
        let mut fields = WireFields::of(bytes);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (1, FieldValue::Bytes(plane)) => space.planes.push(plane),
                (4, FieldValue::Bytes(name)) => space.host_names.push(String::from_utf8_lossy(name).into_owned()),
                _ => {}
            }
        }
        (space.lost, space.is_cut) = (fields.lost, fields.is_cut);
        let began = space.named(ENVIRONMENT).find_map(|plane| plane.whole(StatName::ProfileStart));
        space.base = began.and_then(|began| i64::try_from(began).ok()).unwrap_or(0);
        space
    }

    /// The planes of this name.
    fn named(&self, name: &str) -> impl Iterator<Item = Plane<'a>> {
        self.planes.iter().filter(move |plane| name_of(plane) == name).map(|plane| Plane::of(plane))
    }

    fn host_name(&self) -> String {
        self.host_names.first().filter(|name| !name.is_empty()).cloned().unwrap_or("unknown".into())
    }

    /// The devices that did something, as ranks.
    fn ranks(&self, path: &Path, reason: Option<&str>) -> Vec<ImportedRank> {
        let mut host = Host::default();
        for plane in self.planes.iter().filter(|plane| is_host(&name_of(plane))) {
            host.take(&Plane::of(plane), self.base);
        }
        let programs = self.named(PROGRAMS).next().map(|plane| Programs::of(&plane)).unwrap_or_default();
        let named = self.planes.iter().filter_map(|plane| Some((DeviceKind::of(&name_of(plane))?, *plane)));
        let mut planes: Vec<((DeviceKind, u32), &[u8])> = named.collect();
        planes.sort_by_key(|((_, number), _)| *number);
        let dropped = planes.len().saturating_sub(MOST_DEVICES) as u64;
        planes.truncate(MOST_DEVICES);
        let launching = host.launching();
        let mut ranks: Vec<ImportedRank> = Vec::new();
        for ((kind, number), plane) in planes {
            let plane = Plane::of(plane);
            let mut device = DeviceProfile::of(&plane, kind, self.base, &programs, host.has_steps());
            if device.profile.rows.activities.is_empty() {
                continue;
            }
            host.give(&mut device.profile, &launching, ranks.is_empty(), !device.has_steps);
            let mut loss = device.loss;
            loss.dropped_events += device.profile.rows.dropped;
            let has_phases = device.profile.rows.activities.iter().any(|activity| activity.span.phase.is_some());
            let data = assemble(device.profile, Window::ALL);
            let began = data.spans.start_ns.iter().next().unwrap_or_default();
            let mut info = self.rank_info(Rank(ranks.len() as u32), path, began, device_of(&plane));
            info.reason = reason.map(str::to_owned);
            info.collector.device = Some(number);
            info.collector.phases = has_phases.then_some(PhasesFrom::HloNames);
            let state = if reason.is_some() { State::Interrupted } else { State::Complete };
            ranks.push(ImportedRank { info, state, data, loss });
        }
        if let Some(first) = ranks.first_mut() {
            // What all of them share is lost once.
            first.loss += host.loss;
            first.loss += Loss { dropped_events: dropped, unreadable_bytes: self.lost, unreadable_events: 0 };
            first.loss.unreadable_bytes = first.loss.unreadable_bytes.max(u64::from(reason.is_some()));
            first.info.collector.failed_sources = self.not_read();
        }
        ranks
    }

    fn rank_info(&self, rank: Rank, path: &Path, began: Nanos, device: Option<Device>) -> RankInfo {
        let host = self.host_name();
        // A profile has one clock.
        let clock = ClockRecord {
            source: format!("CLOCK_REALTIME of {host}"),
            snapshots: vec![ClockSnapshot { rank_ns: began, wall_ns: began }],
        };
        let collector = CollectorNotes {
            source: Some(CollectorSource::Xplane),
            file: Some(path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())),
            peak: device.as_ref().and_then(|device| device.peak_flops).map(|_| PeakFrom::DataSheetInBf16),
            ..CollectorNotes::default()
        };
        RankInfo { host, device, collector, ..RankInfo::elsewhere(rank, clock) }
    }

    /// The planes with events that are not read.
    fn not_read(&self) -> Option<FailedSources> {
        let mut failed = FailedSources::default();
        for plane in &self.planes {
            let name = name_of(plane);
            let is_read =
                is_host(&name) || DeviceKind::of(&name).is_some() || [ENVIRONMENT, PROGRAMS].contains(&name.as_str());
            let events = if is_read { 0 } else { events_in(plane) };
            if events > 0 && failed.0.len() < MOST_NAMED {
                let why = format!("not read; the profile has {} of it", text::counted(events, "event"));
                failed.0.insert(name, why);
            }
        }
        (!failed.0.is_empty()).then_some(failed)
    }

    /// What a profile is in which no device did anything.
    fn what_instead(&self, reason: Option<&str>) -> String {
        if let Some(reason) = reason {
            return format!("a JAX or TensorFlow profile (XPlane) in which no device activity can be read: {reason}");
        }
        let devices = self.planes.iter().filter(|plane| DeviceKind::of(&name_of(plane)).is_some()).count() as u64;
        let host: u64 = self.planes.iter().filter(|plane| is_host(&name_of(plane))).map(|plane| events_in(plane)).sum();
        let has = match (devices, host) {
            (0, 0) => "without GPUs or TPUs".to_owned(),
            (0, events) => format!("of the host alone ({}), without GPUs or TPUs", text::counted(events, "event")),
            (devices, _) => format!("in which {} did nothing", text::counted(devices, "device")),
        };
        format!("a JAX or TensorFlow profile (XPlane) {has}")
    }
}

/// The name of a plane, without reading the rest.
fn name_of(plane: &[u8]) -> String {
    let name = WireFields::of(plane).find_map(|(number, value)| match (number, value) {
        (2, FieldValue::Bytes(name)) => Some(name),
        _ => None,
    });
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

/// How many events a plane has.
fn events_in(plane: &[u8]) -> u64 {
    let lines = WireFields::of(plane).filter_map(|(number, value)| match (number, value) {
        (3, FieldValue::Bytes(line)) => Some(line),
        _ => None,
    });
    lines.map(|line| WireFields::of(line).filter(|(number, _)| *number == 4).count() as u64).sum()
}
