//! The end of a process that does not end by itself: whoever waits for a device that is lost waits for ever.
#![allow(unsafe_code, reason = "ending at once is a system call")]

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use stepscope_collector::Recorder;

use crate::{error::TrainError, rendezvous::Link};

/// How long a rank has to end by itself once there is trouble.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a command that failed ends with.
const FAILED: i32 = 2;

/// Ends this process when there is trouble that it does not get out of, unless it is called off.
pub(super) struct LastResort(Arc<AtomicBool>);

impl LastResort {
    pub(super) fn prepare(link: &Arc<Link>, recorder: &Recorder) -> LastResort {
        let called_off = Arc::new(AtomicBool::new(false));
        let (watched, link, recorder) = (called_off.clone(), link.clone(), recorder.clone());
        // Without this thread a rank that hangs is ended by whoever started it.
        drop(thread::Builder::new().name("last resort".into()).spawn(move || {
            let mut since = None;
            while !watched.load(Ordering::Acquire) {
                if let Err(error) = link.trouble.check()
                    && since.get_or_insert_with(Instant::now).elapsed() > GRACE
                {
                    end(&error, recorder);
                }
                thread::sleep(LOOK_EVERY);
            }
        }));
        LastResort(called_off)
    }

    /// There is nothing left that could hang.
    pub(super) fn call_off(self) {
        self.0.store(true, Ordering::Release);
    }
}

fn end(error: &TrainError, recorder: Recorder) -> ! {
    recorder.abandon(&error.to_string());
    // A closed stderr leaves nobody to tell.
    drop(writeln!(std::io::stderr(), "error: {error}"));
    // SAFETY: nothing comes after this; what a driver would do at the end may never end.
    unsafe { nix::libc::_exit(FAILED) }
}
