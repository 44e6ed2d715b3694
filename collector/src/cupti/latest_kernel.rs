//! The kernel that a thread launched last, for a library that says only afterwards what it was.

#![allow(unsafe_code)]

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use stepscope_traces::now;

use crate::{
    launch::LaunchInfo,
    launch_notes::{self, DescribedLaunch},
};

/// Whether CUPTI tells of launches only afterwards.
pub(super) static TOLD_LATER: AtomicBool = AtomicBool::new(false);

/// A kernel that this thread launched and that has no description yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestKernel {
    launch: DescribedLaunch,
    is_only: bool,
}

thread_local! {
    static LATEST: Cell<Option<LatestKernel>> = const { Cell::new(None) };
}

/// Notices a launch that this thread makes now: one of a single kernel has that kernel's number.
#[inline]
pub(super) fn launched(kernel: Option<u32>) {
    // A thread that ends launches nothing of interest.
    let _ = LATEST.try_with(|latest| {
        let is_only = latest.get().is_none();
        latest.set(kernel.map(|correlation| LatestKernel { launch: DescribedLaunch::Numbered(correlation), is_only }));
    });
}

impl LatestKernel {
    /// The kernel that this thread launched last, since this was last called. `None` when it launched none, or CUPTI was
    /// not there to say so. Where that tells of launches only afterwards, it is the last one before now, and there may be
    /// none.
    #[inline]
    pub fn take() -> Option<LatestKernel> {
        if TOLD_LATER.load(Relaxed) {
            let launch = DescribedLaunch::LastOf { thread: this_thread(), before: now() };
            return Some(LatestKernel { launch, is_only: false });
        }
        LATEST.try_with(Cell::take).ok().flatten()
    }

    /// Whether this thread launched no other one since.
    pub fn is_only(self) -> bool {
        self.is_only
    }

    /// Says what it was, if it turns out to be one that communicates. Takes no lock, and no memory but for a thread's
    /// first note.
    pub fn describe(self, info: LaunchInfo) {
        launch_notes::leave_operation(self.launch, info);
    }
}

/// This thread, as CUPTI numbers it.
fn this_thread() -> u32 {
    // SAFETY: every thread has one.
    unsafe { nix::libc::pthread_self() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_taken_once_and_by_the_thread_that_launched_it() {
        assert_eq!(LatestKernel::take(), None);
        launched(Some(1));
        let elsewhere = std::thread::spawn(LatestKernel::take).join().unwrap();
        assert_eq!(elsewhere, None);
        let first = LatestKernel::take().unwrap();
        assert_eq!((first.launch, first.is_only()), (DescribedLaunch::Numbered(1), true));
        assert_eq!(LatestKernel::take(), None);
        launched(Some(2));
        launched(Some(3));
        let third = LatestKernel::take().unwrap();
        assert_eq!((third.launch, third.is_only()), (DescribedLaunch::Numbered(3), false));
        launched(Some(4));
        launched(None);
        assert_eq!(LatestKernel::take(), None, "a graph is not one kernel");
    }
}
