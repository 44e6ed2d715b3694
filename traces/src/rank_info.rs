//! `rank.json`: one rank of a run, and how its recording ended.

use std::{
    fs::{self, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use serde::{Deserialize, Deserializer, Serialize};
use stepscope_plan::possible_peak;

use crate::{
    clock::ClockRecord,
    error::TraceError,
    ids::{Rank, Stage},
    json_file,
    membership::{Membership, Memberships, groups},
    notes::CollectorNotes,
    regular_file::open_regular,
    run_info::{GroupInfo, host_name},
    tables::{CounterSamples, Spans, Table},
    topology::Topology,
};

pub(crate) const FILE: &str = "rank.json";

/// The directory of a rank in a run.
pub(crate) fn rank_directory(run: &Path, rank: Rank) -> PathBuf {
    run.join(format!("rank-{:05}", rank.0))
}

/// One rank of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Its number.
    pub rank: Rank,
    /// Its host.
    pub host: String,
    /// Where else it runs, as far as is known.
    #[serde(default, skip_serializing_if = "Topology::is_unknown", deserialize_with = "Topology::of_file")]
    pub topology: Topology,
    /// Its process.
    pub pid: u32,
    /// Its device, if it is known.
    pub device: Option<Device>,
    /// Its pipeline stage, if it has one.
    pub stage: Option<Stage>,
    /// The groups it is in, as far as it told them while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Membership>,
    /// Its clock.
    pub clock: ClockRecord,
    /// How it is recorded.
    #[serde(default)]
    pub collector: CollectorNotes,
    /// Whether the file system has locks, which tell that the recording goes on.
    #[serde(default)]
    pub(crate) locked: bool,
    /// How many seconds lie between two uploads, in a copy that is uploaded while the rank is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uploaded_every_s: Option<u64>,
    /// What became of the recording, as the recorder wrote it.
    pub(crate) state: WrittenState,
    /// Why it ended early, if the recorder could say.
    pub reason: Option<String>,
    /// What was written, once the recording has ended well.
    pub written: Option<Written>,
}

/// The name of the ranges that say when a rank was recorded, where that was not all the time.
pub const RECORDED_WINDOW: &str = "recorded window";

/// The names of counters of the loss on data that is not trained on, and of the gradient noise scale in tokens.
pub const EVALUATION_LOSS: &str = "evaluation_loss";
/// See [`EVALUATION_LOSS`].
pub const NOISE_SCALE: &str = "gradient_noise_scale";

/// What comes before the layer and the expert in a counter of its tokens.
const EXPERT_TOKENS: &str = "expert_tokens.";

/// The counter of the tokens that went through an expert of a layer in a step, on the rank that holds the expert.
pub fn expert_tokens(layer: u64, expert: u64) -> String {
    format!("{EXPERT_TOKENS}{layer}.{expert}")
}

/// The layer and the expert whose tokens a counter counts, if it does.
pub fn layer_and_expert(counter: &str) -> Option<(u64, u64)> {
    let (layer, expert) = counter.strip_prefix(EXPERT_TOKENS)?.split_once('.')?;
    Some((layer.parse().ok()?, expert.parse().ok()?))
}
/// The name of the ranges in which a rank's process did not run: it was stopped, or its machine had no time for it.
pub const STOOD_STILL: &str = "process stood still";

/// The counter for the tokens that a rank's own replica of the model trains on in a step, where the job's are not told.
pub const REPLICA_TOKENS: &str = "replica_tokens";

/// What computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its memory.
    #[serde(default, deserialize_with = "some_memory")]
    pub memory_bytes: Option<u64>,
    /// What it computes at most, dense, in the precision of the run.
    #[serde(default, deserialize_with = "some_peak")]
    pub peak_flops: Option<f64>,
}

/// What follows the name of a CPU.
const CORE: &str = ", a core, peak measured";

impl Device {
    /// A core of a CPU, with the memory that it can use and the peak that was measured.
    pub fn core(cpu: &str, memory_bytes: Option<u64>, peak_flops: f64) -> Device {
        Device { name: format!("{cpu}{CORE}"), memory_bytes, peak_flops: Some(peak_flops) }
    }

    /// Whether it is a core of a CPU.
    pub fn is_core(&self) -> bool {
        self.name.ends_with(CORE)
    }
}

/// A device without memory is one of which it is not known.
fn some_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.filter(|bytes| *bytes > 0))
}

/// A peak that no device can have is one that is not known.
fn some_peak<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.and_then(possible_peak))
}

/// How many rows each table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Of the spans table.
    pub spans: u64,
    /// Of the memory table.
    pub memory: u64,
    /// Of the counters table.
    pub counters: u64,
    /// Of the strings table.
    pub strings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WrittenState {
    Recording,
    Complete,
    Interrupted,
}

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It ended well.
    Complete,
    /// It goes on.
    Recording,
    /// It ended, and not well: what was flushed is there.
    Interrupted,
}

impl State {
    /// The word for it in JSON and on screen.
    pub fn word(self) -> &'static str {
        match self {
            State::Complete => "complete",
            State::Recording => "recording",
            State::Interrupted => "interrupted",
        }
    }
}

/// The groups that ranks tell, of which it is known along what they talk. The run has so many ranks, if it says so.
pub fn groups_told<'a>(ranks: impl Iterator<Item = &'a RankInfo> + Clone, world_size: Option<u32>) -> Vec<GroupInfo> {
    let told = |info: &'a RankInfo| Memberships {
        rank: info.rank,
        communicators: &info.groups,
        named: info.collector.process_groups.as_ref(),
    };
    groups(ranks.map(told), world_size)
}

impl RankInfo {
    /// A rank of this process, from now on.
    pub fn of_this_process(rank: Rank) -> RankInfo {
        RankInfo {
            rank,
            host: host_name(),
            topology: Topology::of_this_process(),
            pid: std::process::id(),
            device: None,
            stage: None,
            groups: Vec::new(),
            clock: ClockRecord::begin(),
            collector: CollectorNotes::default(),
            locked: false,
            uploaded_every_s: None,
            state: WrittenState::Recording,
            reason: None,
            written: None,
        }
    }

    /// How many ranks are on its device, itself too, if there are others.
    pub fn sharing(&self) -> Option<u32> {
        self.collector.ranks_on_device.and_then(|ranks| u32::try_from(ranks).ok()).filter(|ranks| *ranks > 1)
    }

    /// Whether phases were told from something else than what the program said, at least in part.
    pub fn phases_are_inferred(&self) -> bool {
        self.collector.phases.is_some()
    }

    /// A rank that another tool recorded: nothing is known of it but its clock.
    pub(crate) fn elsewhere(rank: Rank, clock: ClockRecord) -> RankInfo {
        RankInfo {
            rank,
            host: "unknown".into(),
            topology: Topology::default(),
            pid: 0,
            device: None,
            stage: None,
            groups: Vec::new(),
            clock,
            collector: CollectorNotes::default(),
            locked: false,
            uploaded_every_s: None,
            state: WrittenState::Recording,
            reason: None,
            written: None,
        }
    }

    /// What is left of a rank whose `rank.json` says nothing that can be understood.
    pub(crate) fn lost(rank: Rank, why: &str) -> RankInfo {
        let clock = ClockRecord { source: "unknown".into(), snapshots: Vec::new() };
        // A recorder that has only begun has a lock before it has a `rank.json`.
        RankInfo { locked: true, reason: Some(why.to_owned()), ..RankInfo::elsewhere(rank, clock) }
    }

    pub(crate) fn read(directory: &Path) -> Result<RankInfo, TraceError> {
        json_file::read(&directory.join(FILE))
    }

    /// What became of the recording. A recorder holds a lock that goes with its process, however that ends. Without
    /// locks, as in a copy, files that were written to of late tell that it goes on.
    pub(crate) fn state(&self, directory: &Path) -> State {
        match self.state {
            WrittenState::Complete => State::Complete,
            WrittenState::Interrupted => State::Interrupted,
            WrittenState::Recording => {
                let alive = match self.uploaded_every_s {
                    Some(seconds) => {
                        is_fresh(directory, OFTEN + Duration::from_secs(seconds.saturating_mul(LATE_UPLOADS)))
                    }
                    None if self.locked => is_locked(directory),
                    None => is_fresh(directory, OFTEN),
                };
                if alive && self.may_be_alive() { State::Recording } else { State::Interrupted }
            }
        }
    }

    /// Whether the recording process may still be running; unknown for another host.
    fn may_be_alive(&self) -> bool {
        // A forked child that outlives the process keeps its lock.
        self.pid == 0 || self.host != host_name() || self.runs_here()
    }

    /// Whether its process is one of this host that runs.
    pub fn runs_here(&self) -> bool {
        let is_here = self.pid > 0 && self.host == host_name();
        is_here && kill(Pid::from_raw(self.pid as i32), None) != Err(Errno::ESRCH) && self.process_state() != Some('Z')
    }

    /// What the system says of its process, if it is one of this host: `T` is stopped, `Z` has ended and is not waited for.
    pub fn process_state(&self) -> Option<char> {
        let is_here = self.host == host_name();
        let status = is_here.then(|| fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()).flatten()?;
        status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().chars().next()
    }
}

fn is_locked(directory: &Path) -> bool {
    let file = open_regular(&directory.join(Spans::FILE));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Within so much time a recorder writes something: what it costs, every second; and where only the last minutes are kept it
/// says the time every ten.
const OFTEN: Duration = Duration::from_secs(30);
/// So many uploads may come late, or fail, before nobody uploads any more.
const LATE_UPLOADS: u64 = 3;

/// Whether something was written of late: also by a clock that is ahead.
fn is_fresh(directory: &Path, of_late: Duration) -> bool {
    [CounterSamples::FILE, FILE].iter().any(|file| {
        let written = directory.join(file).metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| written.elapsed().unwrap_or_default() < of_late)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_device_can_have_is_not_known() {
        let read = |memory: serde_json::Value, peak: serde_json::Value| {
            let device = json!({ "name": "a device", "memory_bytes": memory, "peak_flops": peak });
            let Device { memory_bytes, peak_flops, .. } = serde_json::from_value(device).unwrap();
            (memory_bytes, peak_flops)
        };
        assert_eq!(read(json!(80), json!(1e15)), (Some(80), Some(1e15)));
        for peak in [json!(0), json!(-1e15), json!(1e-300), json!(1e300), json!(null)] {
            assert_eq!(read(json!(0), peak.clone()), (None, None), "{peak}");
        }
        let device: Device = serde_json::from_value(json!({ "name": "a device" })).unwrap();
        assert_eq!((device.memory_bytes, device.peak_flops), (None, None));
    }
}
