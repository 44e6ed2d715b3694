//! The command that is recorded: started, given the signals that are meant for it, and waited for.
#![allow(unsafe_code, reason = "a child has to begin with the signals that we were given")]

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStderr, Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nix::{
    sys::{
        signal::{SigHandler, SigSet, Signal, kill, signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::Pid,
};

/// What is passed on. What stops and continues reaches the whole group of processes anyway.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// How often to look whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why a command does not run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is none of that name.
    #[error("command not found: `{command}`")]
    NotFound {
        /// What was asked for.
        command: String,
    },
    /// It does not start.
    #[error("cannot start `{command}`: {source}")]
    NotStarted {
        /// What was asked for.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// It runs, and how it ends cannot be known.
    #[error("cannot wait for the command: {0}")]
    NotWaitedFor(#[source] io::Error),
}

/// Whether we were started so that ends of children are not told of.
static CHILDREN_IGNORED: AtomicBool = AtomicBool::new(false);

/// Has the system tell how children end. Whoever starts us with SIGCHLD ignored would have us wait for them in vain. To be
/// called before any thread is started; a recorded command begins as we did.
pub fn hear_of_children() {
    // SAFETY: the default action runs no code of ours.
    let before = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
    CHILDREN_IGNORED.store(matches!(before, Ok(SigHandler::SigIgn)), Ordering::Relaxed);
}

/// A command that runs.
pub struct Job {
    child: Child,
    signals: SignalFd,
    /// What was blocked before.
    before: SigSet,
}

impl Job {
    /// Starts a command. Signals that come from now on wait until they are passed on.
    pub fn start(mut command: Command) -> Result<Job, JobError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => JobError::NotFound { command: name.clone() },
            _ => JobError::NotStarted { command: name.clone(), source },
        };
        let (signals, before) = hold_back().map_err(|error| failed(error.into()))?;
        let ignores_children = CHILDREN_IGNORED.load(Ordering::Relaxed);
        let begin_as_we_did = move || {
            if ignores_children {
                // SAFETY: nothing of ours is run by it.
                unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
            }
            Ok(before.thread_set_mask()?)
        };
        // SAFETY: setting a mask and ignoring a signal are safe between fork and exec.
        unsafe { command.pre_exec(begin_as_we_did) };
        match command.spawn() {
            Ok(child) => Ok(Job { child, signals, before }),
            Err(error) => {
                let _ = before.thread_set_mask();
                Err(failed(error))
            }
        }
    }

    /// What it says on stderr, if that is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for it to end, and passes on the signals that come. Those, and those that it has had already, are also told.
    pub fn wait(mut self, mut tell: impl FnMut(Signal)) -> Result<ExitStatus, JobError> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(JobError::NotWaitedFor)? {
                // What ended it may have come to us, too, and would end us once it is let through.
                while let Ok(Some(signal)) = self.signals.read_signal() {
                    Signal::try_from(signal.ssi_signo.cast_signed()).into_iter().for_each(&mut tell);
                }
                let _ = self.before.thread_set_mask();
                return Ok(status);
            }
            let signal = self.signals.read_signal().map_err(|error| JobError::NotWaitedFor(error.into()))?;
            let Some(signal) = signal else {
                thread::sleep(LOOK_EVERY);
                continue;
            };
            // What a person types at a terminal goes to all processes there: the command has it already.
            let is_sent = signal.ssi_code <= 0;
            let number = Signal::try_from(signal.ssi_signo.cast_signed()).ok();
            number.into_iter().for_each(&mut tell);
            if let Some(number) = number.filter(|number| is_sent && PASSED_ON.contains(number)) {
                // One that has just ended takes it in silence.
                let _ = kill(Pid::from_raw(self.child.id().cast_signed()), number);
            }
        }
    }
}

/// Lets signals wait, and tells what was blocked before.
fn hold_back() -> nix::Result<(SignalFd, SigSet)> {
    let mut held = SigSet::empty();
    PASSED_ON.into_iter().for_each(|signal| held.add(signal));
    let before = SigSet::thread_get_mask()?;
    let signals = SignalFd::with_flags(&held, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    held.thread_block()?;
    Ok((signals, before))
}

/// The exit status that a shell would give: the command's own, or 128 and the signal that ended it.
pub fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use nix::{libc, unistd::gettid};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn status_of(script: &str) -> u8 {
        exit_status(Job::start(shell(script)).unwrap().wait(drop).unwrap())
    }

    #[test]
    fn a_command_ends_as_it_ends() {
        assert_eq!(status_of("true"), 0);
        assert_eq!(status_of("exit 42"), 42);
        assert_eq!(status_of("kill -KILL $$"), 137);
        assert_eq!(status_of("kill -TERM $$"), 143);
    }

    #[test]
    fn what_does_not_start_is_said() {
        let missing = Job::start(Command::new("no-such-command-here")).err().unwrap();
        assert_eq!(missing.to_string(), "command not found: `no-such-command-here`");
        let refused = Job::start(Command::new("/")).err().unwrap().to_string();
        assert!(refused.starts_with("cannot start `/`: "), "{refused}");
        assert!(!SigSet::thread_get_mask().unwrap().contains(Signal::SIGTERM), "signals come again");
    }

    /// A signal to the thread that waits, as one to the process would reach it.
    fn send(thread: Pid, signal: Signal) {
        // SAFETY: the thread is one of this process, and waits for signals.
        let result =
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread.as_raw(), signal as libc::c_int) };
        assert_eq!(result, 0);
    }

    #[test]
    fn what_ended_the_command_does_not_end_us() {
        let job = Job::start(shell("exit 5")).unwrap();
        // It has ended before anybody looks, as a command does that Ctrl-C ends at once.
        thread::sleep(Duration::from_millis(300));
        send(gettid(), Signal::SIGTERM);
        let mut heard = Vec::new();
        assert_eq!((exit_status(job.wait(|signal| heard.push(signal)).unwrap()), heard), (5, vec![Signal::SIGTERM]));
    }

    #[test]
    fn signals_are_passed_on_and_the_command_begins_with_none_blocked() {
        for (script, expected) in
            [("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done", 9), ("echo ready; exec sleep 60", 143)]
        {
            let mut command = shell(script);
            command.stdout(Stdio::piped());
            let mut job = Job::start(command).unwrap();
            let mut ready = [0; 6];
            io::Read::read_exact(job.child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            let waiting = gettid();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    send(waiting, Signal::SIGTERM);
                });
                assert_eq!(exit_status(job.wait(drop).unwrap()), expected, "{script}");
            });
        }
    }
}
