//! The collector inside a program that knows nothing of it.
//!
//! `stepscope record` names this library in three variables. The driver loads it into each process that begins to use CUDA
//! and calls [`InitializeInjection`]; NVTX loads it where a program first names a range and calls
//! [`InitializeInjectionNvtx2`]; NCCL loads it where a program first makes a communicator and finds `ncclProfiler_v2` to
//! `ncclProfiler_v6` there. Any may come first, or never, and each copy of NVTX in a process makes its own call. Where the
//! program is one of PyTorch's, a module of ours in its Python calls the functions of `torch`. A program that says its steps
//! itself, by the package `stepscope`, calls the functions of `program`.
//!
//! This is other people's process. Nothing here writes to its stdout, changes how it ends, waits for long, or lets a panic
//! out. Where it cannot record, the program runs as if it were not there.
#![allow(unsafe_code, reason = "everything here is called from C")]

mod c_text;
mod exit;
#[cfg(test)]
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;
mod gpu;
mod gpu_window;
mod nccl;
mod nvtx;
mod other_profiler;
mod pace;
mod pacer;
mod place;
mod process;
mod program;
mod rank_assignment;
mod recording;
mod session;
#[cfg(test)]
#[path = "../../../tests/support/skipped.rs"]
mod skipped;
mod step_waiter;
mod torch;
mod watch;

use std::{ffi::c_int, panic::catch_unwind};

/// What the driver calls when CUDA begins in this process, in the middle of its own beginning. Says 1, all is well,
/// whatever happens: anything else would be a reason for the driver to complain.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    process::be_quiet();
    drop(catch_unwind(watch::begin));
    1
}

/// What each copy of NVTX calls in this process. Says 1, all is well: otherwise the library would be unloaded.
///
/// # Safety
///
/// Called by NVTX, with its function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(tables: Option<nvtx::GetExportTable>) -> c_int {
    process::be_quiet();
    process::settle();
    // SAFETY: as the caller promises.
    drop(catch_unwind(|| tables.map(|tables| unsafe { nvtx::attach(tables) })));
    1
}
