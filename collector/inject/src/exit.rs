//! The end of the process.

use std::panic::catch_unwind;

use nix::libc;

use crate::watch;

/// Has the recording ended when the process exits: by `exit`, or by returning from `main`. One that is killed or leaves by
/// `_exit` has what was written until then, which is all but the last moment.
///
/// What is registered later is called earlier, so CUDA, which is already there, still is when this is called.
pub(crate) fn call_at_exit() {
    extern "C" fn at_exit() {
        drop(catch_unwind(watch::end));
    }
    // SAFETY: the function is there for as long as this library is, which nobody unloads. If there is no room for it, the
    // recording is read as one that was interrupted.
    unsafe { libc::atexit(at_exit) };
}
