//! A thread beside a job that uploads its run. The job knows nothing of it, and never waits for it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    low_level::{emulate_default_handler, signal_name},
};
use stepscope_collector::quiet_thread;
use stepscope_storage::{Location, Patience, Sending, StorageError};

use super::{command_to_upload, say, say_uploaded};
use crate::failure;

/// How often one looks whether there is enough to be sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much is sent at once, whatever the time: a piece of a file.
const MUCH: u64 = 8 << 20;
/// How long a store that fails is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long it is tried to send the rest after the job has ended, and how often.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE_AT_END: Duration = Duration::from_secs(2);
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(100);
const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// Uploads a run until it is told that the recording has ended, or a signal ends the program.
pub(crate) struct Uploader {
    /// Whoever takes it ends it.
    upload: Arc<Mutex<Option<Upload>>>,
    /// Takes signals, where it is this program that they would end.
    heeding: Option<JoinHandle<()>>,
}

struct Upload {
    run: PathBuf,
    place: Location,
    ended: Sender<()>,
    patience: Patience,
    thread: JoinHandle<(Sending, Result<(), StorageError>)>,
}

impl Uploader {
    pub(super) fn start(run: &Path, place: Location, every: Duration) -> Result<Uploader> {
        let (ended, is_ended) = channel();
        let sending = Sending::new(run, &place).every(every);
        let patience = sending.patience();
        // Signals are for the thread that passes them on.
        let thread = quiet_thread::spawn("stepscope-upload", move || upload(sending, every, &is_ended))?;
        let upload = Upload { run: run.to_owned(), place, ended, patience, thread };
        Ok(Uploader { upload: Arc::new(Mutex::new(Some(upload))), heeding: None })
    }

    /// Has the rest uploaded before a signal ends the program. A second one ends it at once.
    pub(super) fn heeding_signals(self) -> Result<Uploader> {
        let (came, at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            let conditional = flag::register_conditional_default(signal, Arc::clone(&at_once));
            let noted = conditional.and_then(|_| flag::register_usize(signal, Arc::clone(&came), signal as usize));
            noted.context("cannot handle signals")?;
        }
        let upload = Arc::clone(&self.upload);
        let heed = move || {
            while came.load(Ordering::Relaxed) == 0 {
                thread::sleep(LOOK_FOR_SIGNALS);
            }
            // Whoever is in a group of processes may have the same one twice.
            thread::sleep(SAME_SIGNAL);
            at_once.store(true, Ordering::Relaxed);
            // The rest may be on its way already.
            let Some(upload) = take(&upload) else { return };
            let signal = came.load(Ordering::Relaxed) as i32;
            let name = signal_name(signal).unwrap_or("a signal");
            say("upload", &format!("{name}: the rest is uploaded, for {} s at most", PATIENCE.as_secs()));
            upload.end();
            drop(emulate_default_handler(signal));
        };
        let heeding = quiet_thread::spawn("stepscope-upload-signals", heed)?;
        Ok(Uploader { heeding: Some(heeding), ..self })
    }

    /// Uploads the rest, and says what came of it. The recording is here, whatever that is.
    pub(crate) fn end(self) {
        match (take(&self.upload), self.heeding) {
            (Some(upload), _) => upload.end(),
            // A signal came first, and ends the program.
            (None, Some(heeding)) => drop(heeding.join()),
            (None, None) => {}
        }
    }
}

fn take(upload: &Mutex<Option<Upload>>) -> Option<Upload> {
    upload.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Upload {
    fn end(self) {
        let Upload { run, place, ended, patience, thread } = self;
        patience.end_at(Instant::now() + PATIENCE);
        drop(ended);
        match thread.join() {
            Ok((sending, Ok(()))) if sending.sent().requests > 0 => say_uploaded(&place, sending.sent()),
            Ok((_, Ok(()))) => {}
            Ok((_, Err(error))) => {
                let is_taken = matches!(error, StorageError::OtherRun { .. });
                failure::explain(&error.into());
                // The same command would find the same run there.
                let free = is_taken.then(|| format!("{place}-2").parse().ok()).flatten();
                let command = command_to_upload(&run, free.as_ref().unwrap_or(&place));
                say("upload", &format!("not all of it is there; {command}"));
            }
            Err(_) => say("upload", &format!("broke off; {}", command_to_upload(&run, &place))),
        }
    }
}

fn upload(mut sending: Sending, every: Duration, ended: &Receiver<()>) -> (Sending, Result<(), StorageError>) {
    let mut pause = every;
    let mut due = Instant::now();
    let mut is_failing = false;
    while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let is_much = !is_failing && sending.waiting() >= MUCH;
        if Instant::now() < due && !is_much {
            continue;
        }
        match sending.send(false) {
            Ok(()) => {
                if is_failing {
                    say("upload", "goes on");
                }
                (pause, is_failing) = (every, false);
            }
            Err(error) => {
                let next = match error {
                    StorageError::OtherRun { .. } => "nothing of this one is uploaded",
                    _ => "the upload is tried again",
                };
                if !is_failing {
                    say("upload", &format!("{error}; recording goes on here, and {next}"));
                }
                (pause, is_failing) = ((pause * 2).min(LONGEST_PAUSE.max(every)), true);
            }
        }
        due = Instant::now() + pause;
    }
    let sent = patiently(&mut sending);
    (sending, sent)
}

/// Sends everything, and tries again for a while where that may help.
pub(crate) fn patiently(sending: &mut Sending) -> Result<(), StorageError> {
    let (began, patience) = (Instant::now(), sending.patience());
    loop {
        match sending.send(true) {
            Err(error) if error.may_pass() && !patience.is_over() && began.elapsed() < PATIENCE => {
                thread::sleep(PAUSE_AT_END);
            }
            sent => return sent,
        }
    }
}
