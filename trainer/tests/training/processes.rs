use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use stepscope_plan::{ModelShape, ParallelLayout, Zero};
use stepscope_traces::{Loss, Run, RunInfo, Window};
use stepscope_trainer::{
    CudaTraining, GradientReduction, Job, Patience, RankAssignment, RankProcess, StepReport, TrainConfig, TrainError,
    launch_processes, variables_for_ranks,
};
use tempfile::TempDir;

use crate::{
    nccl::on_gpus,
    support::{config, losses, single},
};

/// Longer than anything here takes on a busy machine: whoever takes longer hangs. Which bound of the job's own it was that ended it,
/// its words say.
const NEVER: Duration = Duration::from_secs(300);

/// What the ranks of a test are told to do. They find it in a variable: they are this program, started again.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) layout: ParallelLayout,
    pub(crate) steps: u64,
    /// The bounds, in seconds, for joining and for collectives.
    pub(crate) join: u64,
    pub(crate) collective: u64,
    /// Where the run, the steps and the outcomes go.
    pub(crate) directory: PathBuf,
    /// Which rank has another seed.
    pub(crate) differs: Option<u32>,
    /// Which rank panics after a few steps.
    pub(crate) panics: Option<u32>,
    /// Which model to train on GPUs, if not the small one on the CPU.
    pub(crate) on_gpus: Option<ModelShape>,
    pub(crate) reduction: GradientReduction,
    pub(crate) is_recorded: bool,
}

const TOLD: &str = "STEPSCOPE_TEST_RANK";

/// The body of a rank, when this program is one.
#[test]
fn rank_of_a_job() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Told = serde_json::from_str(&told).unwrap();
    let assignment = RankAssignment::of_this_process().unwrap().unwrap();
    let trained = train(&told, &assignment);
    let outcome = trained.as_ref().map_or_else(ToString::to_string, |()| "trained".into());
    fs::write(told.directory.join(format!("outcome-{}", assignment.rank)), &outcome).unwrap();
    if trained.is_err() {
        eprintln!("error: {outcome}");
        std::process::exit(2);
    }
}

fn train(told: &Told, assignment: &RankAssignment) -> Result<(), TrainError> {
    let patience = Patience {
        join: Duration::from_secs(told.join),
        collective: Duration::from_secs(told.collective),
        ..Patience::default()
    };
    let usual = told.config();
    let seed = usual.seed + u64::from(told.differs == Some(assignment.rank.0));
    let reduction = told.reduction;
    let config = TrainConfig { steps: told.steps, seed, patience, reduction, ..usual };
    let job = Job::join(assignment, &config)?;
    let trained = train_joined(told, &config, &job);
    job.end(trained)
}

impl Told {
    pub(crate) fn config(&self) -> TrainConfig {
        match &self.on_gpus {
            Some(model) => on_gpus(model, self.layout),
            None => config(self.layout),
        }
    }
}

fn train_joined(told: &Told, config: &TrainConfig, job: &Job) -> Result<(), TrainError> {
    let run = job.agree("run", told.directory.join(format!("run of rank {}", job.rank())))?;
    if job.rank().0 == 0 {
        RunInfo::of_this_process("processes").create(&run)?;
    }
    job.meet("recording")?;
    let steps = told.directory.join("steps");
    let report = |step: StepReport| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&steps).unwrap();
        writeln!(file, "{}", step.loss.to_bits()).unwrap();
        assert!(told.panics != Some(0) || step.step < 2, "out of paper");
    };
    let run = told.is_recorded.then_some(run.as_path());
    match told.on_gpus {
        Some(_) => CudaTraining::prepare(config, Some(job))?.run(run, &report),
        None => RankProcess::prepare(config, job)?.run(run, &report),
    }
}

/// Ranks of a test, killed with it.
pub(crate) struct Ranks {
    told: Told,
    pub(crate) directory: TempDir,
    port: u16,
    children: Vec<(u32, Child)>,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

pub(crate) fn told(layout: ParallelLayout) -> (Told, TempDir) {
    let directory = TempDir::new().unwrap();
    let told = Told {
        layout,
        steps: 5,
        join: 20,
        collective: 20,
        directory: directory.path().to_owned(),
        differs: None,
        panics: None,
        on_gpus: None,
        reduction: GradientReduction::default(),
        is_recorded: true,
    };
    (told, directory)
}

fn command(told: &Told) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::rank_of_a_job", "--nocapture"]);
    command.env(TOLD, serde_json::to_string(told).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Ranks {
    pub(crate) fn new((told, directory): (Told, TempDir)) -> Ranks {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        Ranks { told, directory, port, children: Vec::new() }
    }

    fn start(&mut self, rank: u32) {
        let world = self.told.layout.world_size();
        let mut command = command(&self.told);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", self.port.to_string());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
        if self.told.on_gpus.is_some() {
            command
                .envs(variables_for_ranks(world).unwrap().into_iter().map(|(name, value)| (name, value.to_string())));
        }
        self.children.push((rank, command.spawn().unwrap()));
    }

    pub(crate) fn start_all(mut self) -> Ranks {
        (0..self.told.layout.world_size() as u32).for_each(|rank| self.start(rank));
        self
    }

    pub(crate) fn signal(&self, rank: u32, signal: Signal) {
        let child = &self.children.iter().find(|(number, _)| *number == rank).unwrap().1;
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }

    /// How a rank ends, which it does within a time.
    pub(crate) fn outcome(&mut self, rank: u32) -> String {
        let child = &mut self.children.iter_mut().find(|(number, _)| *number == rank).unwrap().1;
        let deadline = Instant::now() + NEVER;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "rank {rank} goes on");
            thread::sleep(Duration::from_millis(10));
        }
        let outcome = fs::read_to_string(self.directory.path().join(format!("outcome-{rank}")));
        outcome.unwrap_or_else(|_| panic!("rank {rank} was ended: {:?}", child.try_wait()))
    }

    pub(crate) fn wait_for_steps(&self, count: usize) {
        let deadline = Instant::now() + NEVER;
        while steps(self.directory.path()).len() < count {
            assert!(Instant::now() < deadline, "there are no {count} steps");
            thread::sleep(Duration::from_millis(10));
        }
        // Long enough for everyone to have flushed what it recorded, and to have said how far it is.
        thread::sleep(Duration::from_millis(1200));
    }
}

/// The losses so far.
pub(crate) fn steps(directory: &Path) -> Vec<f64> {
    let text = fs::read_to_string(directory.join("steps")).unwrap_or_default();
    text.lines().map(|line| f64::from_bits(line.parse().unwrap())).collect()
}

fn dp2() -> ParallelLayout {
    ParallelLayout { dp: 2, micro_batch: 4, ..single() }
}

pub(crate) fn dp2_pp2() -> ParallelLayout {
    ParallelLayout { dp: 2, pp: 2, micro_batch: 2, micro_batches: 2, ..single() }
}

#[test]
fn processes_train_as_threads_do_to_the_last_bit() {
    for layout in [
        dp2(),
        ParallelLayout { zero: Zero::Three, ..dp2() },
        ParallelLayout { tp: 2, ..single() },
        ParallelLayout { pp: 2, micro_batch: 4, micro_batches: 2, ..single() },
        dp2_pp2(),
    ] {
        let mut ranks = Ranks::new(told(layout)).start_all();
        for rank in 0..layout.world_size() as u32 {
            assert_eq!(ranks.outcome(rank), "trained", "{layout:?}");
        }
        assert_eq!(steps(ranks.directory.path()), losses(&config(layout), None).unwrap(), "{layout:?}");
        // All are in rank 0's run, and whole.
        let run = Run::open(&ranks.directory.path().join("run of rank 0")).unwrap();
        assert_eq!(run.ranks.len() as u64, layout.world_size());
        for rank in &run.ranks {
            let (data, loss) = rank.read(Window::ALL).unwrap();
            assert_eq!(loss, Loss::default());
            assert!(data.spans.rows().any(|span| span.kind.is_communication() && span.sequence.is_some()));
        }
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_job() {
    let (told, directory) = told(dp2_pp2());
    let mut ranks = Ranks::new((Told { steps: 100_000, ..told }, directory)).start_all();
    ranks.wait_for_steps(3);
    ranks.signal(2, Signal::SIGKILL);
    for rank in [0, 1, 3] {
        let outcome = ranks.outcome(rank);
        assert!(outcome.starts_with("rank 2 is gone: its connection closed"), "{outcome}");
    }
    let run = Run::open(&ranks.directory.path().join("run of rank 0")).unwrap();
    assert_eq!(run.ranks.len(), 4);
    for rank in &run.ranks {
        let (data, _) = rank.read(Window::ALL).unwrap();
        assert!(data.spans.rows().next().is_some(), "{:?}", rank.info.rank);
    }
}

#[test]
fn a_hub_that_is_killed_ends_the_job() {
    let (told, directory) = told(dp2());
    let mut ranks = Ranks::new((Told { steps: 100_000, ..told }, directory)).start_all();
    ranks.wait_for_steps(2);
    ranks.signal(0, Signal::SIGKILL);
    let outcome = ranks.outcome(1);
    assert!(outcome.starts_with("rank 0 is gone: its connection closed"), "{outcome}");
}

#[test]
fn a_rank_that_hangs_is_named_with_what_it_keeps_waiting() {
    for (layout, hangs) in [(dp2_pp2(), 2), (dp2(), 0)] {
        let (told, directory) = told(layout);
        let mut ranks = Ranks::new((Told { steps: 100_000, collective: 2, ..told }, directory)).start_all();
        ranks.wait_for_steps(2);
        ranks.signal(hangs, Signal::SIGSTOP);
        for rank in (0..layout.world_size() as u32).filter(|rank| *rank != hangs) {
            let outcome = ranks.outcome(rank);
            let named = match hangs {
                // The hub is there, too.
                0 => outcome.starts_with("rank 0 does not answer, and ") && outcome.ends_with(" for 2 s"),
                _ => outcome.starts_with("rank 2 has not reached ") && outcome.contains("last finished operation: "),
            };
            assert!(named && outcome.contains(" of group "), "{outcome}");
        }
    }
}

#[test]
fn a_rank_that_never_joins_is_named() {
    let (told, directory) = told(dp2_pp2());
    let mut ranks = Ranks::new((Told { join: 2, ..told }, directory));
    [0, 1, 3].into_iter().for_each(|rank| ranks.start(rank));
    for rank in [0, 1, 3] {
        assert_eq!(ranks.outcome(rank), "rank 2 of 4 did not join within 2 s");
    }
}

#[test]
fn a_rank_without_a_hub_says_where_it_looked() {
    let (told, directory) = told(dp2());
    let mut ranks = Ranks::new((Told { join: 1, ..told }, directory));
    ranks.start(1);
    let outcome = ranks.outcome(1);
    assert!(outcome.starts_with("cannot reach rank 0 of 2 at 127.0.0.1, port "), "{outcome}");
}

#[test]
fn ranks_with_other_settings_are_refused() {
    let (told, directory) = told(dp2());
    let mut ranks = Ranks::new((Told { differs: Some(1), ..told }, directory)).start_all();
    for rank in [0, 1] {
        assert_eq!(ranks.outcome(rank), "rank 1 and rank 0 have different settings: seed is 1, not 0");
    }
}

#[test]
fn whoever_else_finds_the_port_is_ignored() {
    let mut ranks = Ranks::new(told(dp2()));
    ranks.start(0);
    let deadline = Instant::now() + Duration::from_secs(10);
    let knock = || loop {
        match TcpStream::connect(("127.0.0.1", ranks.port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    let silent = knock();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], b"\x02\0\0\0{}", b"\x10\0\0\0"] {
        let mut stream = knock();
        // It may hang up before all of it is written.
        stream.write_all(bytes).ok();
        stream.shutdown(std::net::Shutdown::Write).ok();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // It greets everybody, and then hangs up.
        let mut heard = Vec::new();
        match stream.read_to_end(&mut heard) {
            Ok(_) => assert!(heard.starts_with(b"stepscope") && heard.len() == 44, "{bytes:?}: {heard:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{bytes:?}"),
        }
    }
    ranks.start(1);
    for rank in [0, 1] {
        assert_eq!(ranks.outcome(rank), "trained");
    }
    drop(silent);
}

#[test]
fn a_launcher_runs_all_ranks_and_says_once_what_failed() {
    let (told, directory) = told(dp2());
    launch_processes(2, Duration::ZERO, || command(&told)).unwrap();
    assert_eq!(steps(directory.path()), losses(&config(dp2()), None).unwrap());
    // Rank 0 says itself what happened.
    let said = Told { differs: Some(1), ..told.clone() };
    assert!(matches!(launch_processes(2, Duration::ZERO, || command(&said)), Err(TrainError::Said)));
    let panics = Told { panics: Some(0), steps: 100_000, ..told.clone() };
    assert!(launch_processes(2, Duration::ZERO, || command(&panics)).is_err());
    let outcome = fs::read_to_string(directory.path().join("outcome-1")).unwrap();
    assert!(outcome.starts_with("rank 0 is gone: "), "{outcome}");
}

#[test]
fn a_launcher_does_not_start_more_processes_than_a_machine_has_use_for() {
    let refused =
        launch_processes(1 << 24, Duration::ZERO, || panic!("none of them is started")).unwrap_err().to_string();
    assert!(refused.contains("16777216 ranks are too many; at most 1024"), "{refused}");
}
