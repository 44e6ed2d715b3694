//! A run that a test has a process recorded into.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
};

use stepscope_collector::injection::{Injection, VARIABLE, Windows};
use stepscope_traces::{Run, RunInfo};
use tempfile::TempDir;

/// What a recorded process is to do.
pub(crate) const MODE: &str = "STEPSCOPE_TEST_MODE";

/// A run to record into.
pub(crate) struct Recording {
    directory: TempDir,
}

impl Recording {
    pub(crate) fn new() -> Recording {
        let recording = Recording { directory: tempfile::tempdir().unwrap() };
        RunInfo::of_this_process("test").create(&recording.path()).unwrap();
        recording
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn command(&self, mode: &str, windows: Windows) -> Command {
        let injection = Injection { run: self.path(), windows, budget: None, whole_graphs: false };
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["recorded_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(MODE, mode).env(VARIABLE, injection.to_text().unwrap());
        for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(variable);
        }
        command
    }

    pub(crate) fn record(&self, mode: &str, windows: Windows) -> Output {
        self.command(mode, windows).output().unwrap()
    }

    pub(crate) fn open(&self) -> Run {
        Run::open(&self.path()).unwrap()
    }
}

/// The status, and that nothing was said.
pub(crate) fn quiet_status(output: &Output) -> Option<i32> {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    output.status.code()
}
