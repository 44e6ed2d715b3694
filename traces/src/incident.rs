//! `incidents/` in a run: moments at which something went wrong, each with what was recorded around it.
//!
//! `incidents/0003-slow-step/` has an `incident.json`. Of a run of which only the last minutes are kept it is a run, too: it
//! has the `run.json`, and of each rank the segments of that time. Those are links to the same files, so keeping them copies
//! nothing, and they stay when the ring lets go of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::TraceError,
    ids::{Nanos, Rank, Step},
    json_file,
    notes::{NativeThread, PythonThread},
    rank_info::{self, RankInfo, WrittenState, rank_directory},
    ring,
    run_info::{self, RunInfo},
    tables::{Strings, Table},
};

/// The folder of a run's incidents.
const FOLDER: &str = "incidents";
const FILE: &str = "incident.json";

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// What kind of thing.
    pub kind: IncidentKind,
    /// When it was noticed, in nanoseconds since 1970, UTC.
    pub time_ns: Nanos,
    /// In which step, if it is about one.
    pub step: Option<Step>,
    /// The ranks that are at fault; none, where that is not known.
    pub ranks: Vec<Rank>,
    /// What happened, in a sentence.
    pub summary: String,
    /// What that rests on, and what is known besides.
    pub evidence: Vec<String>,
    /// The first and the last step that were recorded around it, if there are any.
    pub steps: Option<(Step, Step)>,
    /// Whether the job ended with it.
    #[serde(default)]
    pub ended_job: bool,
    /// Whether what was recorded around it has been looked at.
    #[serde(default)]
    pub explained: bool,
    /// Where the threads of ranks were, of a hang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<RankStacks>,
}

/// Where the threads of a rank were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStacks {
    /// Which rank.
    pub rank: Rank,
    /// Its threads that run Python, the main one first.
    pub python: Vec<PythonThread>,
    /// All of its threads, as the system sees them.
    pub native: Vec<NativeThread>,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// A step took far longer than those before it.
    SlowStep,
    /// The loss is no number.
    LossNotFinite,
    /// No step ends any more.
    Hang,
    /// A device had no memory left.
    OutOfMemory,
    /// The program raised what nobody caught.
    Exception,
    /// A person interrupted the job.
    Interrupted,
    /// The job was asked to end.
    Terminated,
    /// A process of the job was killed, or crashed.
    Killed,
    /// The job ended with an error.
    Failed,
}

impl IncidentKind {
    /// All of them.
    pub const ALL: [IncidentKind; 9] = [
        IncidentKind::SlowStep,
        IncidentKind::LossNotFinite,
        IncidentKind::Hang,
        IncidentKind::OutOfMemory,
        IncidentKind::Exception,
        IncidentKind::Interrupted,
        IncidentKind::Terminated,
        IncidentKind::Killed,
        IncidentKind::Failed,
    ];

    /// The word for it in files and on screen.
    pub fn word(self) -> &'static str {
        match self {
            IncidentKind::SlowStep => "slow-step",
            IncidentKind::LossNotFinite => "loss-not-finite",
            IncidentKind::Hang => "hang",
            IncidentKind::OutOfMemory => "out-of-memory",
            IncidentKind::Exception => "exception",
            IncidentKind::Interrupted => "interrupted",
            IncidentKind::Terminated => "terminated",
            IncidentKind::Killed => "killed",
            IncidentKind::Failed => "failed",
        }
    }
}

/// An incident, where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptIncident {
    /// Its directory. It is a run, if [`KeptIncident::has_recording`].
    pub path: PathBuf,
    /// What it is.
    pub incident: Incident,
}

impl KeptIncident {
    /// Makes the directory of an incident of a run, and writes down what is known.
    pub fn create(run: &Path, incident: Incident) -> Result<KeptIncident, TraceError> {
        let folder = run.join(FOLDER);
        fs::create_dir_all(&folder).map_err(TraceError::io("create", &folder))?;
        let mut number = numbered(&folder).last().map_or(1, |(number, _)| number + 1);
        let path = loop {
            let path = folder.join(format!("{number:04}-{}", incident.kind.word()));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(TraceError::io("create", &path)(error)),
            }
        };
        let kept = KeptIncident { path, incident };
        kept.write()?;
        Ok(kept)
    }

    /// Those of a run, the first first. What cannot be read is left out.
    pub fn all_of(run: &Path) -> Vec<KeptIncident> {
        let read = |path: PathBuf| Some(KeptIncident { incident: json_file::read(&path.join(FILE)).ok()?, path });
        numbered(&run.join(FOLDER)).into_iter().filter_map(|(_, path)| read(path)).collect()
    }

    /// When something was written into the folder of a run's incidents, or into that of one of them; none, if there are none.
    pub fn last_written(run: &Path) -> Option<SystemTime> {
        let folder = run.join(FOLDER);
        let written = |path: &Path| fs::metadata(path).and_then(|folder| folder.modified()).ok();
        let of_each = numbered(&folder).into_iter().filter_map(|(_, path)| written(&path));
        of_each.chain(written(&folder)).max()
    }

    /// Writes down what is known of it now.
    pub fn write(&self) -> Result<(), TraceError> {
        json_file::replace(&self.path.join(FILE), &self.incident)
    }

    /// Whether what was recorded around it is kept there.
    pub fn has_recording(&self) -> bool {
        self.path.join(run_info::FILE).is_file()
    }

    /// Keeps what ranks of its run, each in its directory, recorded of late: segments that were written to within this time, the
    /// newest first, as many as have so many bytes of a rank. What it keeps already stays, and counts. Only where segments go
    /// otherwise; whatever cannot be kept is not.
    pub fn keep(
        &self,
        run: &Path,
        ranks: &[(Rank, &Path)],
        within: Duration,
        most_bytes: u64,
    ) -> Result<(), TraceError> {
        let info = RunInfo::read(run)?;
        if info.black_box.is_none() {
            return Ok(());
        }
        for (rank, from) in ranks {
            // One that cannot be kept is no reason not to keep the others.
            drop(keep_rank(from, &rank_directory(&self.path, *rank), within, most_bytes));
        }
        // It is a run when all of it is there.
        json_file::replace(&self.path.join(run_info::FILE), &RunInfo { black_box: None, ..info })
    }

    /// Lets go of what the oldest incidents of a run keep, until all of them together keep no more of a rank than this.
    pub fn let_go_of_oldest(run: &Path, most_bytes: u64) {
        let all = numbered(&run.join(FOLDER));
        let mut bytes: Vec<u64> = all.iter().map(|(_, path)| bytes_of_a_rank(path)).collect();
        for (index, (_, path)) in all.iter().enumerate() {
            if bytes.iter().sum::<u64>() <= most_bytes {
                return;
            }
            drop(fs::remove_file(path.join(run_info::FILE)));
            ranks(path).for_each(|rank| drop(fs::remove_dir_all(rank)));
            bytes[index] = 0;
        }
    }
}

/// Keeps what a rank recorded of late.
fn keep_rank(from: &Path, to: &Path, within: Duration, most_bytes: u64) -> Result<(), TraceError> {
    let mut info = RankInfo::read(from)?;
    fs::create_dir_all(to.join(ring::FOLDER)).map_err(TraceError::io("create", to))?;
    let strings = to.join(Strings::FILE);
    if !strings.exists() {
        link(&from.join(Strings::FILE), &strings).map_err(TraceError::io("write", &strings))?;
    }
    let since = SystemTime::now().checked_sub(within).unwrap_or(SystemTime::UNIX_EPOCH);
    let kept = ring::segments(to);
    let mut bytes: u64 = kept.iter().map(|number| Folder::of(&ring::segment(to, *number)).bytes).sum();
    for number in ring::segments(from).into_iter().rev().filter(|number| !kept.contains(number)) {
        let segment = Folder::of(&ring::segment(from, number));
        // The newest one is always there, and what lies before those that are is too old.
        let is_needed = bytes == 0 || kept.first().is_some_and(|first| number > *first);
        let is_wanted = bytes + segment.bytes <= most_bytes && segment.written.is_some_and(|time| time >= since);
        if !(is_needed && bytes < 2 * most_bytes || is_wanted && kept.is_empty()) {
            break;
        }
        bytes += segment.bytes;
        // One that has just gone is missed.
        drop(segment.link_to(&ring::segment(to, number)));
    }
    // What goes on in the run is over here.
    info.state = WrittenState::Complete;
    info.written = None;
    json_file::replace(&to.join(rank_info::FILE), &info)
}

/// The ranks of which something is kept in the directory of an incident.
fn ranks(incident: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(incident).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    entries.filter(|path| path.join(rank_info::FILE).is_file() || path.join(ring::FOLDER).is_dir())
}

/// How much of a rank is kept there, of the one of which most is.
fn bytes_of_a_rank(incident: &Path) -> u64 {
    let bytes = |rank: PathBuf| {
        let segments = ring::segments(&rank).into_iter().map(|number| ring::segment(&rank, number));
        segments.map(|segment| Folder::of(&segment).bytes).sum()
    };
    ranks(incident).map(bytes).max().unwrap_or(0)
}

/// The directories of incidents, by their numbers.
fn numbered(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let number = |name: &str| name.split('-').next()?.parse().ok();
    let mut found: Vec<(u32, PathBuf)> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort();
    found
}

/// A folder of files.
struct Folder {
    files: Vec<PathBuf>,
    bytes: u64,
    /// When it was written to last.
    written: Option<SystemTime>,
}

impl Folder {
    fn of(path: &Path) -> Folder {
        let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        let mut folder = Folder { files: Vec::new(), bytes: 0, written: None };
        for entry in entries {
            if let Ok(metadata) = entry.metadata() {
                folder.bytes += metadata.len();
                folder.written = folder.written.max(metadata.modified().ok());
                folder.files.push(entry.path());
            }
        }
        folder
    }

    fn link_to(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.files.iter().try_for_each(|file| link(file, &path.join(file.file_name().unwrap_or_default())))
    }
}

/// Gives a file another name. Some file systems have no links: there it is copied.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => fs::copy(from, to).map(drop),
        linked => linked,
    }
}
