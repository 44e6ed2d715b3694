//! Which groups this process is in, until its recording knows.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use stepscope_collector::Recorder;
use stepscope_traces::{CollectorNote, Membership, NcclNote};

/// A program may make communicators without end.
const MOST: usize = 4096;

static MEMBERSHIPS: Mutex<Memberships> = Mutex::new(Memberships { told: 0, untold: Vec::new() });
/// Which version NCCL speaks, until that is told.
static VERSION: AtomicU8 = AtomicU8::new(0);

struct Memberships {
    told: usize,
    untold: Vec<Membership>,
}

/// Notices a communicator, by the version of the interface.
pub(super) fn join(version: u8, membership: Option<Membership>) {
    let mut memberships = MEMBERSHIPS.lock().unwrap_or_else(PoisonError::into_inner);
    if memberships.told + memberships.untold.len() < MOST {
        memberships.untold.extend(membership);
    }
    // Last: whoever sees this sees that too.
    VERSION.store(version, Relaxed);
}

/// Tells the recording what is new. To be called while it records.
pub(crate) fn tell(recorder: &Recorder) {
    let version = VERSION.swap(0, Relaxed);
    if version == 0 {
        return;
    }
    recorder.note(CollectorNote::Nccl(NcclNote { profiler_version: version }));
    let mut memberships = MEMBERSHIPS.lock().unwrap_or_else(PoisonError::into_inner);
    memberships.told += memberships.untold.len();
    memberships.untold.drain(..).for_each(|membership| recorder.join_group(membership));
}
