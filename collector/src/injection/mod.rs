//! What `stepscope record` and the library that it has loaded into programs say to each other.
//!
//! The command says where and when to record, in one variable that all processes of the job inherit. Later there is only
//! the run directory: whoever triggers a recording, or asks where processes are, leaves a file there, which each of them looks
//! at.
//!
//! | file | idea |
//! |---|---|
//! | `windows.rs` | when a process is recorded |
//! | `budget.rs` | what that may cost, and which steps are recorded for it |
//! | `dump_request.rs` | the question where a process is that makes no more steps |
//! | `left.rs` | files that are left in a run for the processes of its job |
//! | `unpacked.rs` | files that the command carries, unpacked for programs to load |
//! | `library.rs` | the library |
//! | `python.rs` | what says what PyTorch does, and how it is found |
//! | `job.rs` | the command: started with the library, given our signals, waited for |

mod budget;
mod dump_request;
mod job;
mod left;
mod library;
mod python;
mod unpacked;
mod windows;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};

pub use budget::{Budget, RecordedSteps, SaidPace};
pub use dump_request::{DUMP_REQUEST_FILE, DumpRequest};
pub use job::{Job, JobError, exit_status, hear_of_children};
pub use library::{LIBRARY_FILE, LibraryError, library};
pub use python::PythonModule;
pub use windows::{Moment, TRIGGER_FILE, Trigger, Windows};

/// The variable that says what to do.
pub const VARIABLE: &str = "STEPSCOPE_INJECTION";
/// What the driver looks at: the library to load into a process that uses CUDA.
const CUDA_VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// What NVTX looks at: the library to tell of ranges.
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// What NCCL looks at: the library to tell of operations.
pub const NCCL_VARIABLE: &str = "NCCL_PROFILER_PLUGIN";

/// What a process is to do that the library is loaded into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// The run to record into: a full path, since programs go elsewhere.
    pub run: PathBuf,
    /// When to record.
    pub windows: Windows,
    /// What that may cost, if it is to be kept low.
    pub budget: Option<Budget>,
    /// Whether CUDA graphs are recorded as a whole, and not the kernels in them.
    pub whole_graphs: bool,
}

impl Injection {
    /// As the value of [`VARIABLE`].
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// What this process is to do, if anything.
    pub fn of_this_process() -> Option<Result<Injection, serde_json::Error>> {
        env::var(VARIABLE).ok().map(|text| serde_json::from_str(&text))
    }

    /// Has the library loaded into whatever a command starts that uses CUDA. Another profiler of NCCL's stays.
    pub fn apply(&self, command: &mut Command, library: &Path) -> Result<(), serde_json::Error> {
        command.env(VARIABLE, self.to_text()?).env(CUDA_VARIABLE, library).env(NVTX_VARIABLE, library);
        if other_nccl_profiler().is_none() {
            command.env(NCCL_VARIABLE, library);
        }
        Ok(())
    }
}

/// The tool that is loaded into programs already, if one is: there is room for one.
pub fn other_tool() -> Option<PathBuf> {
    [CUDA_VARIABLE, NVTX_VARIABLE].into_iter().find_map(named)
}

/// The profiler that NCCL tells of operations already, if there is one: it tells one.
pub fn other_nccl_profiler() -> Option<PathBuf> {
    named(NCCL_VARIABLE)
}

/// What a variable of this process names.
fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stepscope_traces::Step;

    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let seconds = Duration::from_secs_f64;
        for windows in [
            Windows::ALWAYS,
            Windows::Timed { after: seconds(1.5), duration: Some(seconds(0.25)), every: Some(seconds(60.0)) },
            Windows::Steps { first: Step(10), end: Some(Step(20)) },
            Windows::Dormant,
        ] {
            let injection =
                Injection { run: "/runs/some one's".into(), windows, budget: Some(Budget::USUAL), whole_graphs: true };
            let heard: Injection = serde_json::from_str(&injection.to_text().unwrap()).unwrap();
            assert_eq!(heard, injection);
            let mut command = Command::new("true");
            injection.apply(&mut command, Path::new("/lib/it.so")).unwrap();
            let set: Vec<_> = command.get_envs().filter(|(name, _)| *name != VARIABLE).collect();
            let library = Some("/lib/it.so".as_ref());
            assert_eq!(set, [CUDA_VARIABLE, NCCL_VARIABLE, NVTX_VARIABLE].map(|name| (name.as_ref(), library)));
        }
    }
}
