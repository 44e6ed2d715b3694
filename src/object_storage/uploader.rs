//! A thread beside a job that uploads its run. The job knows nothing of it, and never waits for it.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;
use stepscope_collector::quiet_thread;
use stepscope_storage::{Location, Sending, StorageError};

use super::{command_to_upload, say, say_uploaded};
use crate::failure;

/// How often one looks whether there is enough to be sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much is sent at once, whatever the time: a piece of a file.
const MUCH: u64 = 8 << 20;
/// How long a store that fails is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long it is tried to send the rest after the job has ended, and how often.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE_AT_END: Duration = Duration::from_secs(2);

/// Uploads a run until it is told that the recording has ended.
pub(crate) struct Uploader {
    run: PathBuf,
    place: Location,
    ended: Sender<()>,
    thread: JoinHandle<(Sending, Result<(), StorageError>)>,
}

impl Uploader {
    pub(super) fn start(run: &Path, place: Location, every: Duration) -> Result<Uploader> {
        let (ended, is_ended) = channel();
        let sending = Sending::new(run, &place);
        // Signals are for the thread that passes them on.
        let thread = quiet_thread::spawn("stepscope-upload", move || upload(sending, every, &is_ended))?;
        Ok(Uploader { run: run.to_owned(), place, ended, thread })
    }

    /// Uploads the rest, and says what came of it. The recording is here, whatever that is.
    pub(crate) fn end(self) {
        let Uploader { run, place, ended, thread } = self;
        drop(ended);
        match thread.join() {
            Ok((sending, Ok(()))) if sending.sent().requests > 0 => say_uploaded(&place, sending.sent()),
            Ok((_, Ok(()))) => {}
            Ok((_, Err(error))) => {
                failure::explain(&error.into());
                say("upload", &format!("not all of it is there; {}", command_to_upload(&run, &place)));
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
                if !is_failing {
                    say("upload", &format!("{error}; recording goes on here, and the upload is tried again"));
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
    let began = Instant::now();
    loop {
        match sending.send(true) {
            Err(error) if error.may_pass() && began.elapsed() < PATIENCE => thread::sleep(PAUSE_AT_END),
            sent => return sent,
        }
    }
}
