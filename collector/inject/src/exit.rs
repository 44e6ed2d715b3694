//! The end of the process.

use std::{panic::catch_unwind, sync::OnceLock};

use nix::libc;

/// What ends the recording.
static END: OnceLock<fn()> = OnceLock::new();

/// Has the recording ended by this when the process exits: by `exit`, or by returning from `main`. One that is killed or
/// leaves by `_exit` has what was written until then, which is all but the last moment.
///
/// What is registered later is called earlier, so CUDA, which is already there, still is when this is called.
pub(crate) fn call_at_exit(end: fn()) {
    extern "C" fn at_exit() {
        drop(catch_unwind(|| END.get().into_iter().for_each(|end| end())));
    }
    // In a fork that begins anew it is there already, and the same.
    let _ = END.set(end);
    // SAFETY: the function is there for as long as this library is, which nobody unloads. If there is no room for it, the
    // recording is read as one that was interrupted.
    unsafe { libc::atexit(at_exit) };
}
