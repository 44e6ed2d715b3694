//! Threads of the collector's own inside a program.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread that takes no signals: the program's are for the program's threads. A blocked SIGXFSZ becomes an error
/// of `write`.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    // A new thread has the mask of the one that makes it.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let thread = Builder::new().name(name.into()).spawn(body);
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
    thread
}
