use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::root;

/// How long a line of a page may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What pages find in the directory that their commands run in, beside the repository's traces, and where it is from.
const GIVEN: [(&str, &str); 5] = [
    ("traces/samples/dp2-bucketed", "runs/before"),
    ("traces/samples/dp2-zero3", "runs/after"),
    ("traces/tests/fixtures/kineto/ddp", "profile"),
    ("traces/tests/fixtures/ddp-rank0.pickle", "rank0.pickle"),
    ("README.md", "book.txt"),
];

/// A directory like that of somebody who reads the pages: the repository's samples, runs, traces, and a run just made.
pub(crate) struct World {
    model: TempDir,
}

impl World {
    pub(crate) fn prepare() -> World {
        let world = World { model: directory() };
        let path = world.model.path();
        for (from, to) in GIVEN {
            copy(&root().join(from), &path.join(to));
        }
        let trained = run("stepscope train --steps 3", path);
        assert_eq!(trained.status, Some(0), "{}", trained.text);
        world
    }

    /// A copy of it for one page.
    pub(crate) fn copy(&self) -> TempDir {
        let directory = directory();
        for name in ["runs", "profile", "rank0.pickle", "book.txt"] {
            copy(&self.model.path().join(name), &directory.path().join(name));
        }
        directory
    }
}

/// A directory with the repository's traces and the command in it.
fn directory() -> TempDir {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path();
    fs::create_dir(path.join("bin")).unwrap();
    symlink(root().join("traces"), path.join("traces")).unwrap();
    symlink(env!("CARGO_BIN_EXE_stepscope"), path.join("bin/stepscope")).unwrap();
    directory
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
}

/// What a line of a shell printed.
pub(crate) struct Printed {
    /// Its status; none if it was ended.
    pub(crate) status: Option<i32>,
    /// What it said, on stdout and stderr.
    pub(crate) text: String,
}

/// Runs a line of a shell in a directory.
pub(crate) fn run(line: &str, directory: &Path) -> Printed {
    let said = directory.join("said");
    let file = fs::File::create(&said).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(directory).stdin(Stdio::null());
    command.stdout(file.try_clone().unwrap()).stderr(file);
    command.env("PATH", format!("{}:{path}", directory.join("bin").display()));
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env("NO_COLOR", "1");
    for variable in ["COLUMNS", "RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SSH_CONNECTION"] {
        command.env_remove(variable);
    }
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = fs::read_to_string(&said).unwrap();
    fs::remove_file(said).unwrap();
    Printed { status, text }
}
