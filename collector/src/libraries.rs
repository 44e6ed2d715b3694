//! NVIDIA's libraries, found at run time.

use std::path::PathBuf;

/// A library that may or may not be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver.
    Cuda,
    /// Device management.
    Nvml,
    /// Profiling.
    Cupti,
    /// The compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Attention.
    Cudnn,
    /// Collectives.
    Nccl,
}

/// A library that is loaded.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it was opened from.
    pub path: PathBuf,
}

/// A library that is not there.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{library:?} was not found")]
pub struct Missing {
    /// Which one.
    pub library: Library,
}

/// Loads a library and keeps it for the life of the process, so that it is found by its name from now on.
pub fn open(library: Library) -> Result<Found, Missing> {
    Err(Missing { library })
}
