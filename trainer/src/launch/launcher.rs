//! Ranks as processes of this machine: started, watched, and ended together.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, getppid},
};
use stepscope_traces::Rank;

use crate::{
    error::TrainError,
    rendezvous::{SECRET, random_letters},
};

/// Says to a rank which process started it, and with which it is to end.
const LAUNCHER: &str = "STEPSCOPE_LAUNCHER";
/// How often to look after the ranks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the others have to end after one has failed.
const GRACE: Duration = Duration::from_secs(5);
/// So many processes are started on one machine.
const MOST_PROCESSES: u32 = 1024;
/// What is kept of a rank's words.
const MOST_WORDS: usize = 8 << 10;

/// Starts a process for each rank, with the variables of torchrun and a secret, and waits for all. Rank 0 speaks for all of them; of
/// the others only the first that failed is heard, if rank 0 could not say why. `grace` is what they may take, beside the usual, to
/// end after a signal or a failure.
pub fn launch_processes(ranks: u64, grace: Duration, command: impl Fn() -> Command) -> Result<(), TrainError> {
    let few = u32::try_from(ranks).ok().filter(|ranks| *ranks <= MOST_PROCESSES);
    let ranks = few.ok_or_else(|| {
        let why =
            format!("{ranks} ranks are too many; at most {MOST_PROCESSES} processes can be started on one machine");
        TrainError::Settings(why)
    })?;
    let (port, secret) = (free_port()?, random_letters()?);
    let mut processes = Vec::new();
    for rank in 0..ranks {
        let mut command = command();
        command.env_remove("TORCHELASTIC_USE_AGENT_STORE").env("MASTER_ADDR", "127.0.0.1").env(SECRET, &secret);
        for (name, value) in [
            ("RANK", rank),
            ("WORLD_SIZE", ranks),
            ("LOCAL_RANK", rank),
            ("LOCAL_WORLD_SIZE", ranks),
            ("MASTER_PORT", port.into()),
            (LAUNCHER, std::process::id()),
        ] {
            command.env(name, value.to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        }
        let child = command.spawn();
        processes.push(Process::of(Rank(rank), child.map_err(|error| cannot(&format!("rank {rank}: {error}")))?));
    }
    let signals = Signals::take()?;
    processes.iter_mut().for_each(Process::listen);
    let stopped = wait(&mut processes, &signals, GRACE + grace);
    drop(signals);
    match stopped {
        Some(signal) => Err(TrainError::Stopped(signal.as_str())),
        None => outcome(processes),
    }
}

/// Ends this process with the one that launched it, if one did.
pub(super) fn die_with_launcher() -> Result<(), TrainError> {
    let Some(launcher) = std::env::var(LAUNCHER).ok().and_then(|pid| pid.parse::<i32>().ok()) else { return Ok(()) };
    set_pdeathsig(Signal::SIGTERM).map_err(|error| cannot(&error.to_string()))?;
    // It may have ended before that.
    if getppid() != Pid::from_raw(launcher) {
        return Err(cannot("the launcher of this rank is gone"));
    }
    Ok(())
}

struct Process {
    rank: Rank,
    child: Child,
    stderr: Option<ChildStderr>,
    words: Option<JoinHandle<Vec<u8>>>,
    /// How it ended, and when.
    ended: Option<(ExitStatus, Instant)>,
    killed: bool,
}

impl Process {
    fn of(rank: Rank, mut child: Child) -> Process {
        let stderr = child.stderr.take();
        Process { rank, child, stderr, words: None, ended: None, killed: false }
    }

    /// Keeps the end of what it says.
    fn listen(&mut self) {
        let Some(mut stderr) = self.stderr.take() else { return };
        let thread = thread::Builder::new().name(format!("words of rank {}", self.rank));
        self.words = thread
            .spawn(move || {
                let (mut words, mut buffer) = (Vec::new(), [0; 1024]);
                while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                    words.extend_from_slice(&buffer[..read]);
                    let excess = words.len().saturating_sub(MOST_WORDS);
                    words.drain(..excess);
                }
                words
            })
            .ok();
    }

    fn send(&self, signal: Signal) {
        // One that has ended, and is not yet waited for, takes it in silence.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    fn has_failed(&self) -> bool {
        self.ended.is_some_and(|(status, _)| !status.success())
    }

    /// The end of what it said.
    fn said(&mut self) -> String {
        let words = self.words.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&words).trim().to_owned()
    }

    /// Says what it said of itself: that its recording stopped early, perhaps.
    fn pass_on(mut self) {
        for line in self.said().lines().filter(|line| line.starts_with("stepscope: ")) {
            // A closed stderr leaves nobody to tell.
            drop(writeln!(std::io::stderr(), "{line}"));
        }
    }

    /// Why it failed: in its own last words, or by how it ended.
    fn why(mut self) -> String {
        let words = self.said();
        let said = words.rsplit_once("error: ").map_or(words.as_str(), |(_, said)| said).to_owned();
        let status = self.ended.map(|(status, _)| status);
        let signal = status.and_then(|status| status.signal()).and_then(|signal| Signal::try_from(signal).ok());
        let how = match (signal, status) {
            (Some(signal), _) => format!("it was killed by {}", signal.as_str()),
            (None, Some(status)) => format!("it exited with {status}"),
            (None, None) => "it did not exit".into(),
        };
        if said.is_empty() || signal.is_some() { how } else { said }
    }
}

/// Signals that end this process, held back so that they reach the ranks first.
struct Signals {
    before: SigSet,
    waiting: SignalFd,
}

impl Signals {
    fn take() -> Result<Signals, TrainError> {
        let mut signals = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
        let take = || {
            let before = SigSet::thread_get_mask()?;
            signals.thread_block()?;
            let waiting = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
            Ok::<_, nix::Error>(Signals { before, waiting })
        };
        take().map_err(|error| cannot(&error.to_string()))
    }

    fn next(&self) -> Option<Signal> {
        let signal = self.waiting.read_signal().ok()??;
        Signal::try_from(signal.ssi_signo.cast_signed()).ok()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// Waits until all have ended, and says which signal ended them, if one did.
fn wait(processes: &mut [Process], signals: &Signals, grace: Duration) -> Option<Signal> {
    let mut stopped = None;
    let mut deadline: Option<Instant> = None;
    loop {
        for process in processes.iter_mut().filter(|process| process.ended.is_none()) {
            if let Ok(Some(status)) = process.child.try_wait() {
                process.ended = Some((status, Instant::now()));
            }
        }
        if processes.iter().all(|process| process.ended.is_some()) {
            return stopped;
        }
        let running = || processes.iter().filter(|process| process.ended.is_none());
        if let Some(signal) = signals.next() {
            running().for_each(|process| process.send(signal));
            stopped = Some(signal);
        }
        if stopped.is_some() || processes.iter().any(Process::has_failed) {
            deadline.get_or_insert_with(|| Instant::now() + grace);
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            running().for_each(|process| process.send(Signal::SIGKILL));
            processes.iter_mut().filter(|process| process.ended.is_none()).for_each(|process| process.killed = true);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// What all ends together mean.
fn outcome(processes: Vec<Process>) -> Result<(), TrainError> {
    let spoke =
        |process: &Process| process.ended.is_some_and(|(status, _)| status.code().is_some_and(|code| code != 0));
    if processes.first().is_some_and(spoke) {
        return Err(TrainError::Said);
    }
    let (failed, others): (Vec<_>, Vec<_>) =
        processes.into_iter().partition(|process| process.has_failed() && !process.killed);
    match failed.into_iter().min_by_key(|process| process.ended.map(|(_, when)| when)) {
        Some(first) => {
            let (rank, why) = (first.rank, first.why());
            // One that speaks of another is only its witness.
            let speaks_of_another = why.strip_prefix("rank ").is_some_and(|rest| rest.starts_with(char::is_numeric));
            Err(if speaks_of_another { TrainError::NotJoined(why) } else { TrainError::RankGone { rank, why } })
        }
        None => {
            others.into_iter().for_each(Process::pass_on);
            Ok(())
        }
    }
}

fn free_port() -> Result<u16, TrainError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| cannot(&error.to_string()))
}

fn cannot(why: &str) -> TrainError {
    TrainError::NotJoined(format!("cannot start ranks as processes: {why}"))
}
