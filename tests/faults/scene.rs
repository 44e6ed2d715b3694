use std::{
    cell::RefCell,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::recorded::recorded;

/// Whoever takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(300);
/// How often it is looked at.
const OFTEN: Duration = Duration::from_millis(20);
/// The status of the job, whatever happens to it.
pub(crate) const STATUS: i32 = 42;

/// Programs that faults are inflicted with, and a run to read.
pub(crate) struct Kit {
    directory: TempDir,
}

impl Kit {
    /// None where there is no compiler.
    pub(crate) fn build() -> Option<Kit> {
        let kit = Kit { directory: tempfile::tempdir().unwrap() };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults");
        for (program, source, options) in
            [(kit.job(), "job.c", &["-O1"][..]), (kit.failing_calls(), "failing_calls.c", &["-O1", "-shared", "-fPIC"])]
        {
            let built =
                Command::new("cc").args(options).arg(sources.join(source)).arg("-o").arg(program).arg("-ldl").status();
            if !built.ok()?.success() {
                panic!("{source} cannot be compiled");
            }
        }
        let mut train = stepscope(kit.directory.path());
        train.args([
            "train",
            "--backend=cpu",
            "--dp=2",
            "--steps=4",
            "--seq-len=16",
            "--micro-batch=1",
            "--run=trained",
        ]);
        let trained = train.output().unwrap();
        assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
        Some(kit)
    }

    pub(crate) fn job(&self) -> PathBuf {
        self.directory.path().join("job")
    }

    fn failing_calls(&self) -> PathBuf {
        self.directory.path().join("failing_calls.so")
    }

    /// A run of two ranks, which nobody may change.
    pub(crate) fn trained(&self) -> PathBuf {
        self.directory.path().join("trained")
    }
}

fn stepscope(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    // Nothing is left in the cache of whoever runs this.
    command.current_dir(directory).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "STEPSCOPE_SECRET"] {
        command.env_remove(variable);
    }
    command
}

/// Where one fault is inflicted, once.
pub(crate) struct Scene<'a> {
    pub(crate) kit: &'a Kit,
    directory: TempDir,
    pub(crate) round: u64,
    random: RefCell<fastrand::Rng>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Steps that were in the run at one moment or another, as a reader saw it.
    pub(crate) seen: u64,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(kit: &'a Kit, round: u64) -> Scene<'a> {
        Scene {
            kit,
            directory: tempfile::tempdir().unwrap(),
            round,
            random: RefCell::new(fastrand::Rng::with_seed(round)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path().join("run")
    }

    /// When a fault comes: in the first round at this place, later somewhere around it.
    pub(crate) fn moment(&self, usual: u64) -> u64 {
        if self.round == 0 { usual } else { self.random.borrow_mut().u64(0..=2 * usual) }
    }

    pub(crate) fn stepscope(&self, words: &[&str]) -> Command {
        let mut command = stepscope(self.path());
        command.args(words);
        command
    }

    /// `stepscope record` of the job.
    pub(crate) fn record(&self, job: &[&str]) -> Command {
        let mut command = self.stepscope(&["record", "--budget", "none", "--run", "run", "--"]);
        command.arg(self.kit.job()).args(job);
        command
    }

    /// `stepscope record` of a line of shell, in which `$JOB` is the job.
    pub(crate) fn record_line(&self, line: &str) -> Command {
        let mut command = self.stepscope(&["record", "--budget", "none", "--run", "run", "--", "sh", "-c", line]);
        command.env("JOB", self.kit.job());
        command
    }

    /// Has calls of a program fail, by rules of `failing_calls.c`.
    pub(crate) fn with_rules(&self, mut command: Command, rules: &str) -> Command {
        command.env("LD_PRELOAD", self.kit.failing_calls()).env("STEPSCOPE_TEST_RULES", rules);
        command
    }

    /// Starts a program whose words go into files of this scene.
    pub(crate) fn start(&self, mut command: Command) -> Child {
        let file = |name: &str| File::create(self.path().join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap()
    }

    /// What it has said so far.
    pub(crate) fn said(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path().join(name)).unwrap()).into_owned()
    }

    /// Waits until it ends, and reads its run meanwhile.
    pub(crate) fn end(&self, child: Child) -> Ended {
        self.end_reading(child, |seen| recorded(&self.run()).map_or(seen, |found| found.steps.max(seen)))
    }

    /// Waits until it ends.
    pub(crate) fn end_unread(&self, child: Child) -> Ended {
        self.end_reading(child, |seen| seen)
    }

    fn end_reading(&self, mut child: Child, read: impl Fn(u64) -> u64) -> Ended {
        let (began, mut seen) = (Instant::now(), 0);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > HANGS_AFTER {
                drop(child.kill());
                panic!("it hangs; it said: {}", self.said("stderr"));
            }
            seen = read(seen);
            thread::sleep(OFTEN);
        };
        let (stdout, stderr) = (self.said("stdout"), self.said("stderr"));
        assert!(!stderr.contains("panicked at"), "{stderr}");
        Ended { status, stdout, stderr, seen }
    }

    pub(crate) fn run_to_end(&self, command: Command) -> Ended {
        self.end(self.start(command))
    }

    /// Waits for something.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < HANGS_AFTER, "{what}: it never was; it said: {}", self.said("stderr"));
            thread::sleep(OFTEN);
        }
    }

    /// Waits until so many steps of a job are in its run.
    pub(crate) fn until_steps(&self, count: u64) {
        self.until(&format!("{count} steps are recorded"), || {
            recorded(&self.run()).is_some_and(|found| found.steps >= count)
        });
    }
}

/// What the job computes in so many steps.
pub(crate) fn computed(steps: u64) -> String {
    let numbers = (0..steps).flat_map(|step| (0..1000).map(move |index| step + index));
    let sum = numbers.fold(1_u64, |sum, number| {
        // As in C, step and index are added one after the other, which is the same.
        sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number)
    });
    format!("sum {sum}\n")
}

impl Ended {
    /// That the job did what it does without a recorder.
    pub(crate) fn assert_unchanged(&self, steps: u64) {
        assert_eq!(
            (self.status.code(), self.stdout.as_str()),
            (Some(STATUS), computed(steps).as_str()),
            "{}",
            self.stderr
        );
    }

    /// The first line on stderr that has this in it.
    pub(crate) fn line_with(&self, words: &str) -> &str {
        self.stderr
            .lines()
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("nobody says {words:?}: {}", self.stderr))
    }
}
