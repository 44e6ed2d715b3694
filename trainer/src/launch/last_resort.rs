//! Ends a process that does not end by itself, such as one that waits forever for a lost device.
#![allow(unsafe_code, reason = "ending at once is a system call")]

use std::{
    io::Write,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use stepscope_collector::Recorder;

use crate::{error::TrainError, rendezvous::Link};

/// How long a rank has to end by itself once there is trouble.
const GRACE: Duration = Duration::from_secs(10);
/// How long its recording has then.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a command that failed ends with.
const FAILED: i32 = 2;

/// Ends this process when there is trouble that it does not get out of, unless it is called off.
#[derive(Clone)]
pub(super) struct LastResort(Arc<State>);

#[derive(Default)]
struct State {
    is_off: AtomicBool,
    recorder: OnceLock<Recorder>,
}

impl LastResort {
    pub(super) fn prepare(link: &Arc<Link>) -> LastResort {
        let (state, link) = (Arc::new(State::default()), link.clone());
        let watched = state.clone();
        // Without this thread a rank that hangs is ended by whoever started it.
        drop(thread::Builder::new().name("last resort".into()).spawn(move || {
            let mut since = None;
            while !watched.is_off.load(Ordering::Acquire) {
                if let Err(error) = link.trouble.check()
                    && since.get_or_insert_with(Instant::now).elapsed() > GRACE
                {
                    end(&error, watched.recorder.get().cloned());
                }
                thread::sleep(LOOK_EVERY);
            }
        }));
        LastResort(state)
    }

    /// Ends a recording too, if it comes to that.
    pub(super) fn end_too(&self, recorder: &Recorder) {
        // A rank has one.
        drop(self.0.recorder.set(recorder.clone()));
    }

    /// There is nothing left that could hang.
    pub(super) fn call_off(&self) {
        self.0.is_off.store(true, Ordering::Release);
    }
}

fn end(error: &TrainError, recorder: Option<Recorder>) -> ! {
    let why = error.to_string();
    // A closed stderr leaves nobody to tell.
    drop(writeln!(std::io::stderr(), "error: {why}"));
    let (tell, hear) = mpsc::channel::<()>();
    let abandon = move || {
        recorder.into_iter().for_each(|recorder| recorder.abandon(&why));
        drop(tell);
    };
    if thread::Builder::new().spawn(abandon).is_ok() {
        let _ = hear.recv_timeout(RECORDED_WITHIN);
    }
    // SAFETY: nothing comes after this; what a driver would do at the end may never end.
    unsafe { nix::libc::_exit(FAILED) }
}
