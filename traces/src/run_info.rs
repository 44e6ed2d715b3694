//! `run.json`: what was run, in enough detail to run it again.

use std::{
    fmt::Display,
    fs,
    io::{ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use chrono::{DateTime, Local, SecondsFormat};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, geteuid},
};
use serde::{Deserialize, Serialize, de::Error};
use stepscope_plan::{Axis, ModelShape, ParallelLayout};

use crate::{
    clock::time_of_day,
    error::TraceError,
    format::SCHEMA_VERSION,
    ids::{Group, Nanos, Rank},
    json_file,
};

pub(crate) const FILE: &str = "run.json";

/// How long a run waits to learn which code it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The version of the run directory.
    pub schema: u32,
    /// The version of Stepscope that wrote it.
    pub stepscope: String,
    /// What recorded it.
    #[serde(default, skip_serializing_if = "RunSource::is_stepscope")]
    pub source: RunSource,
    /// What people call the run.
    pub name: String,
    /// When it began, in RFC 3339.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The directory the command was given in.
    pub directory: String,
    /// The host it was given on.
    pub host: String,
    /// The revision of the code in that directory, if git knows it.
    pub git: Option<GitRevision>,
    /// How many ranks take part, if that is known.
    pub world_size: Option<u32>,
    /// What was trained, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelShape>,
    /// How it was spread over the ranks, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ParallelLayout>,
    /// Which ranks talked to each other, as far as that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupInfo>,
    /// What each rank keeps at most, where only the last minutes are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub black_box: Option<RingBounds>,
    /// What was configured, in the words of the program.
    #[serde(default)]
    pub configuration: serde_json::Map<String, serde_json::Value>,
}

/// What recorded a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunSource {
    /// Stepscope itself.
    #[default]
    Stepscope,
    /// PyTorch's profiler.
    Kineto,
    /// A memory snapshot of PyTorch's.
    TorchSnapshot,
    /// Nsight Systems.
    Nsys,
    /// XLA's profiler, of JAX and TensorFlow.
    Xplane,
    /// AMD's profiler of ROCm.
    Rocprof,
    /// PyTorch's recorder of collectives.
    FlightRecorder,
}

impl RunSource {
    fn is_stepscope(&self) -> bool {
        *self == RunSource::Stepscope
    }

    /// What recorded it, in words, where that was not Stepscope.
    pub fn other_tool(self) -> Option<&'static str> {
        match self {
            RunSource::Stepscope => None,
            RunSource::Kineto => Some("PyTorch profiler"),
            RunSource::TorchSnapshot => Some("PyTorch memory snapshot"),
            RunSource::Nsys => Some("Nsight Systems"),
            RunSource::Xplane => Some("XLA profiler"),
            RunSource::Rocprof => Some("rocprofv3 profiler"),
            RunSource::FlightRecorder => Some("PyTorch Flight Recorder"),
        }
    }
}

/// What a rank keeps at most, of a run of which only the last minutes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingBounds {
    /// How many seconds.
    pub keep_seconds: f64,
    /// How many bytes, with what its incidents keep and what is left of older steps.
    pub max_bytes: u64,
}

impl RingBounds {
    /// How much of it is for the incidents, all together: a quarter.
    pub fn incident_bytes(&self) -> u64 {
        self.max_bytes / 4
    }

    /// How much of it is for what is left of older steps: a quarter, too.
    pub fn history_bytes(&self) -> u64 {
        self.max_bytes / 4
    }

    /// How much of it is for the last minutes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.max_bytes - self.incident_bytes() - self.history_bytes()
    }

    /// How much time.
    pub(crate) fn keep(&self) -> Nanos {
        Nanos((self.keep_seconds * Nanos::SECOND.0 as f64) as i64)
    }
}

/// A process group: what the `group` of a collective stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Its number in the spans.
    pub group: Group,
    /// Along what its ranks talk.
    pub axis: Axis,
    /// Its ranks, in their order in it.
    pub ranks: Vec<Rank>,
}

/// Which code ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitRevision {
    /// The commit.
    pub commit: String,
    /// Whether tracked files differed from it.
    pub modified: bool,
}

impl RunInfo {
    /// Describes this process: its command line, directory, host and code, now.
    pub fn of_this_process(name: impl Into<String>) -> RunInfo {
        let directory = std::env::current_dir().unwrap_or_default();
        RunInfo {
            schema: SCHEMA_VERSION,
            stepscope: env!("CARGO_PKG_VERSION").into(),
            source: RunSource::Stepscope,
            name: name.into(),
            started: time_of_day().to_rfc3339_opts(SecondsFormat::Millis, true),
            command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            host: host_name(),
            git: GitRevision::of(&directory),
            directory: directory.to_string_lossy().into_owned(),
            world_size: None,
            model: None,
            layout: None,
            groups: Vec::new(),
            black_box: None,
            configuration: serde_json::Map::new(),
        }
    }

    /// Describes what another tool recorded, from this time of day on, in nanoseconds since 1970.
    pub(crate) fn of_tool(source: RunSource, name: String, began: i64) -> RunInfo {
        RunInfo {
            schema: SCHEMA_VERSION,
            stepscope: env!("CARGO_PKG_VERSION").into(),
            source,
            name,
            started: DateTime::from_timestamp_nanos(began).to_rfc3339_opts(SecondsFormat::Millis, true),
            command: Vec::new(),
            directory: String::new(),
            host: "unknown".into(),
            git: None,
            world_size: None,
            model: None,
            layout: None,
            groups: Vec::new(),
            black_box: None,
            configuration: serde_json::Map::new(),
        }
    }

    /// When it began, since 1970, UTC.
    pub fn started_at(&self) -> Option<Nanos> {
        DateTime::parse_from_rfc3339(&self.started).ok()?.timestamp_nanos_opt().map(Nanos)
    }

    /// How many steps it is to make, where it says so.
    pub fn planned_steps(&self) -> Option<u64> {
        self.configuration.get("steps")?.as_u64()
    }

    /// The directory this run has by default: under `runs/`, by local time and name.
    pub fn default_path(&self) -> PathBuf {
        let started = DateTime::parse_from_rfc3339(&self.started).map_or_else(|_| time_of_day(), |time| time.to_utc());
        self.path_after(&started.with_timezone(&Local).format("%Y-%m-%dT%H-%M-%S"))
    }

    /// A directory under `runs/`, by something and its name.
    pub fn path_after(&self, first: &impl Display) -> PathBuf {
        let name: String =
            self.name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
        Path::new("runs").join(format!("{first}-{name}"))
    }

    /// Makes the directory and writes `run.json`. Refuses a directory that is a run already, or that holds anything else:
    /// a run is never written among other people's files.
    pub fn create(&self, path: &Path) -> Result<(), TraceError> {
        let is_new = self.create_beside(path, |_| false)?;
        if is_new { Ok(()) } else { Err(TraceError::AlreadyRecorded { path: path.to_owned() }) }
    }

    /// As [`RunInfo::create`], but a run that is there already is joined: what ranks do that start on their own. Says
    /// whether this call made the run.
    pub fn create_or_join(&self, path: &Path) -> Result<bool, TraceError> {
        // Another rank may be about to make the run.
        self.create_beside(path, |entry| entry.starts_with(FILE))
    }

    /// Writes `run.json` unless it is there, in a directory that has nothing else but what is expected.
    fn create_beside(&self, path: &Path, is_expected: impl Fn(&str) -> bool) -> Result<bool, TraceError> {
        if path.metadata().is_ok_and(|there| !there.is_dir()) {
            return Err(TraceError::NotARun { path: path.to_owned(), why: "it is a file".into() });
        }
        fs::create_dir_all(path).map_err(TraceError::io("create", path))?;
        let directory = fs::metadata(path).map_err(TraceError::io("open", path))?;
        if directory.uid() != geteuid().as_raw() && directory.mode() & Mode::S_IWOTH.bits() != 0 {
            return Err(TraceError::OpenToAll { path: path.to_owned() });
        }
        let file = path.join(FILE);
        if fs::symlink_metadata(&file).is_ok() {
            return Ok(false);
        }
        for entry in fs::read_dir(path).map_err(TraceError::io("read", path))? {
            let entry = entry.map_err(TraceError::io("read", path))?.file_name().to_string_lossy().into_owned();
            if !is_expected(&entry) {
                // Whoever made the run since has the directory.
                let is_run = fs::symlink_metadata(&file).is_ok();
                return if is_run { Ok(false) } else { Err(TraceError::NotEmpty { path: path.to_owned(), entry }) };
            }
        }
        json_file::create(&file, self)
    }

    /// Reads `run.json`.
    pub(crate) fn read(path: &Path) -> Result<RunInfo, TraceError> {
        /// What every version has: enough to refuse a newer one in good words.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
            #[serde(default)]
            stepscope: String,
        }
        let file = path.join(FILE);
        let not_a_run = |why: &str| TraceError::NotARun { path: path.to_owned(), why: why.into() };
        match path.metadata() {
            Ok(metadata) if !metadata.is_dir() => return Err(not_a_run("it is a file")),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(TraceError::Missing { path: path.to_owned() });
            }
            Err(error) => return Err(TraceError::io("open", path)(error)),
        }
        if file.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Err(not_a_run("it has no run.json"));
        }
        let version: Version = json_file::read(&file)?;
        if version.schema > SCHEMA_VERSION {
            let written_by = version.stepscope;
            return Err(TraceError::NewerSchema { path: path.to_owned(), found: version.schema, written_by });
        }
        let info: RunInfo = json_file::read(&file)?;
        match info.layout.map(|layout| layout.check_sizes()) {
            Some(Err(error)) => Err(TraceError::Json { path: file, source: serde_json::Error::custom(error) }),
            _ => Ok(info),
        }
    }
}

impl GitRevision {
    /// The revision of the work tree around a directory.
    fn of(directory: &Path) -> Option<GitRevision> {
        let mut git = Command::new("git");
        git.args(["describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=40"]).current_dir(directory);
        let described = line_of(&mut git, PATIENCE)?;
        let commit = described.trim_end_matches('+');
        (!commit.is_empty()).then(|| GitRevision { commit: commit.into(), modified: described.ends_with('+') })
    }
}

/// The line that a command writes, if it succeeds within `patience`. A large work tree on a slow file system can
/// keep git for minutes; a run does not wait for it.
fn line_of(command: &mut Command, patience: Duration) -> Option<String> {
    let deadline = Instant::now() + patience;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                // Unlike a kill, this lets git remove its locks. It is not waited for: it may be stuck in the kernel.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
                return None;
            }
        }
    };
    // What it wrote is in the pipe by now. Something it left running may hold the other end: the end is not waited for.
    let mut stdout = child.stdout.take().filter(|_| status.success())?;
    fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    let mut line = [0; 256];
    let length = stdout.read(&mut line).ok()?;
    Some(String::from_utf8_lossy(&line[..length]).trim().to_owned())
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use nix::unistd::{Uid, chown};

    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn a_directory_of_another_user_that_everyone_can_write_to_is_refused() {
        if !geteuid().is_root() {
            return skipped("privileges", &"only root can make one");
        }
        let directory = tempfile::tempdir().unwrap();
        let info = RunInfo::of_this_process("test");
        for (owner, mode, is_refused) in
            [(65_534, 0o1777, true), (65_534, 0o777, true), (65_534, 0o755, false), (geteuid().as_raw(), 0o777, false)]
        {
            let run = directory.path().join(format!("{owner}-{mode:o}"));
            fs::create_dir(&run).unwrap();
            fs::set_permissions(&run, Permissions::from_mode(mode)).unwrap();
            chown(&run, Some(Uid::from_raw(owner)), None).unwrap();
            let refused = matches!(info.create(&run), Err(TraceError::OpenToAll { .. }));
            assert_eq!((refused, run.join(FILE).exists()), (is_refused, !is_refused), "{run:?}");
        }
    }

    #[test]
    fn a_command_that_hangs_is_not_waited_for() {
        let shell = |script: &str, patience| {
            let began = Instant::now();
            let line = line_of(Command::new("sh").args(["-c", script]), patience);
            assert!(began.elapsed() < Duration::from_secs(15), "{script}");
            line
        };
        let long = Duration::from_secs(10);
        assert_eq!(shell("echo ' some words '", long).as_deref(), Some("some words"));
        assert_eq!(shell("echo words; exit 1", long), None);
        assert_eq!(shell("sleep 20 & echo words", long).as_deref(), Some("words"), "its child holds the pipe");
        assert_eq!(shell("echo words; exec sleep 20", Duration::from_millis(50)), None);
        assert_eq!(line_of(&mut Command::new("/no/such/program"), long), None);
    }
}
