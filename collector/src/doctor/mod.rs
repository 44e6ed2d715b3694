//! What this machine has for GPUs: what was found and where, what is missing, and what is permitted.
//!
//! | file | idea |
//! |---|---|
//! | `ask.rs` | asks libraries for their versions, the driver whether it starts, and CUPTI whether it is free |
//! | `permission.rs` | who may read hardware counters |
//! | `python.rs` | which Python environments have PyTorch |

mod ask;
mod permission;
mod python;

use std::{env, path::PathBuf};

use serde::Serialize;

pub use ask::{Cuda, Cupti};
pub use permission::Counters;
pub use python::Packages;

use crate::{
    libraries::{self, Library},
    nvml::{self, Gpu},
};

/// What this machine has for GPUs. As JSON it is public; who writes that adds what is known of each GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The GPUs of this machine, those that CUDA is not to see among them.
    #[serde(skip)]
    pub gpus: Vec<Gpu>,
    /// The driver's own version, if there is one.
    pub driver: Option<String>,
    /// CUDA, if there is a driver.
    pub cuda: Option<Cuda>,
    /// Every library that may be used.
    pub libraries: Vec<LibraryReport>,
    /// Whether kernels can be recorded.
    pub cupti: Cupti,
    /// Whether hardware counters can be read.
    pub counters: Counters,
    /// Whether GPUs can be sampled.
    pub nvml: NvmlReport,
    /// The Python environments that were searched.
    pub python: Vec<Packages>,
    /// Whether training runs on the CPU unless one says otherwise.
    pub cpu_default: bool,
}

/// What became of one library.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryReport {
    /// What people call it.
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// Where it was found.
    pub path: Option<PathBuf>,
    /// Its version, as it says itself.
    pub version: Option<String>,
    /// Why it cannot be used.
    pub missing: Option<String>,
    /// How to get it, if it is missing.
    pub hint: Option<&'static str>,
}

/// Whether GPUs can be sampled.
#[derive(Clone, Debug, Serialize)]
pub struct NvmlReport {
    /// They can; each GPU says what of it.
    pub available: bool,
    /// Why they cannot.
    pub reason: Option<String>,
}

/// Looks at everything. It changes nothing, and needs neither a GPU nor a driver.
pub fn examine() -> Examination {
    let cuda = libraries::open(Library::Cuda).ok().map(|_| Cuda::start());
    let (gpus, nvml) = match nvml::survey() {
        Ok(gpus) => (gpus, NvmlReport { available: true, reason: None }),
        Err(error) => {
            let told_by_cuda = cuda.as_ref().filter(|cuda| cuda.works()).map(|_| ask::gpus()).unwrap_or_default();
            (told_by_cuda, NvmlReport { available: false, reason: Some(error.to_string()) })
        }
    };
    Examination {
        gpus,
        driver: nvml::driver_version(),
        cpu_default: !(cuda.as_ref().is_some_and(Cuda::works) && can_train()),
        cupti: Cupti::try_out(cuda.as_ref()),
        cuda,
        libraries: Library::ALL.map(LibraryReport::of).into(),
        counters: Counters::of_this_process(),
        nvml,
        python: python::environments(&libraries::python_packages()),
    }
}

/// Whether there is what training on a GPU takes, beside the GPU.
fn can_train() -> bool {
    [Library::Nvrtc, Library::CublasLt].into_iter().all(|library| libraries::open(library).is_ok())
}

impl LibraryReport {
    fn of(library: Library) -> LibraryReport {
        let (name, purpose) = (library.name(), library.purpose());
        let nothing = LibraryReport { name, purpose, path: None, version: None, missing: None, hint: None };
        match libraries::open(library) {
            Ok(found) => LibraryReport { path: Some(found.path), version: ask::version(library), ..nothing },
            Err(missing) => LibraryReport { missing: Some(missing.to_string()), hint: Some(missing.hint()), ..nothing },
        }
    }
}

/// Which GPUs CUDA is to see, if the environment says so.
fn visible_devices() -> Option<String> {
    env::var_os("CUDA_VISIBLE_DEVICES").map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_machine_can_be_examined() {
        let examination = examine();
        assert_eq!(examination.libraries.len(), Library::ALL.len());
        for library in &examination.libraries {
            assert_ne!(library.path.is_some(), library.missing.is_some(), "{library:?}");
            assert_eq!(library.missing.is_some(), library.hint.is_some(), "{library:?}");
        }
        assert_eq!(examination.nvml.available, examination.nvml.reason.is_none());
        assert_eq!(examination.cpu_default, !(examination.cuda.is_some_and(|cuda| cuda.works()) && can_train()));
    }
}
