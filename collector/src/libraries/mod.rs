//! NVIDIA's libraries, found at run time: nothing of them is needed to build.
//!
//! | file | idea |
//! |---|---|
//! | `search.rs` | where a library may be, in order |
//! | `loader.rs` | opens it, once and for good |
//! | `elf.rs` | whether a file is all there |
//! | `alias.rs` | makes a library known by a second name |

mod alias;
mod elf;
mod loader;
mod search;

use std::{fmt, path::PathBuf, sync::OnceLock};

use search::Environment;

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
    /// Many matrix products at once.
    Cublas,
    /// Attention.
    Cudnn,
    /// Collectives.
    Nccl,
}

/// What is known of a library before it is found.
struct Traits {
    name: &'static str,
    purpose: &'static str,
    /// Between `lib` and `.so`.
    stem: &'static str,
    /// The versions in its file's name that will do, the newest first.
    majors: &'static [u32],
    kind: Kind,
    /// What every version of it that will do exports.
    symbol: &'static [u8],
    hint: &'static str,
}

/// Where a library comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With the driver, and of its version.
    Driver,
    /// With a CUDA toolkit, whose major version is the file's.
    Toolkit,
    /// By itself.
    Own,
}

const DRIVER_HINT: &str = "install the NVIDIA driver; start containers with GPU access (docker run --gpus all)";

impl Library {
    /// All of them, the driver first.
    pub const ALL: [Library; 8] = [
        Library::Cuda,
        Library::Nvml,
        Library::Cupti,
        Library::Nvrtc,
        Library::CublasLt,
        Library::Cublas,
        Library::Cudnn,
        Library::Nccl,
    ];

    fn traits(self) -> &'static Traits {
        match self {
            Library::Cuda => &Traits {
                name: "CUDA driver",
                purpose: "runs work on GPUs",
                stem: "cuda",
                majors: &[1],
                kind: Kind::Driver,
                symbol: b"cuMemAllocAsync\0",
                hint: DRIVER_HINT,
            },
            Library::Nvml => &Traits {
                name: "NVML",
                purpose: "reports GPU power, clocks and activity",
                stem: "nvidia-ml",
                majors: &[1],
                kind: Kind::Driver,
                symbol: b"nvmlInit_v2\0",
                hint: DRIVER_HINT,
            },
            Library::Cupti => &Traits {
                name: "CUPTI",
                purpose: "records kernels",
                stem: "cupti",
                majors: &[13, 12],
                kind: Kind::Toolkit,
                symbol: b"cuptiGetVersion\0",
                hint: "pip install nvidia-cuda-cupti, or install the CUDA toolkit's cuda-cupti package",
            },
            Library::Nvrtc => &Traits {
                name: "NVRTC",
                purpose: "compiles kernels",
                stem: "nvrtc",
                majors: &[13, 12],
                kind: Kind::Toolkit,
                symbol: b"nvrtcVersion\0",
                hint: "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit's cuda-nvrtc package",
            },
            Library::CublasLt => &Traits {
                name: "cuBLASLt",
                purpose: "multiplies matrices",
                stem: "cublasLt",
                majors: &[13, 12],
                kind: Kind::Toolkit,
                symbol: b"cublasLtGetVersion\0",
                hint: "pip install nvidia-cublas, or install the CUDA toolkit's libcublas package",
            },
            Library::Cublas => &Traits {
                name: "cuBLAS",
                purpose: "multiplies the matrices of experts at once (optional: one after the other without it)",
                stem: "cublas",
                majors: &[13, 12],
                kind: Kind::Toolkit,
                symbol: b"cublasGetProperty\0",
                hint: "pip install nvidia-cublas, or install the CUDA toolkit's libcublas package",
            },
            Library::Cudnn => &Traits {
                name: "cuDNN",
                purpose: "computes attention (optional: stepscope has its own kernels)",
                stem: "cudnn",
                majors: &[9],
                kind: Kind::Own,
                symbol: b"cudnnGetVersion\0",
                hint: "pip install nvidia-cudnn-cu13, or install the package cudnn9-cuda-13",
            },
            Library::Nccl => &Traits {
                name: "NCCL",
                purpose: "connects GPUs (not needed for one GPU)",
                stem: "nccl",
                majors: &[2],
                kind: Kind::Own,
                symbol: b"ncclGetVersion\0",
                hint: "pip install nvidia-nccl-cu13, or install the package libnccl2",
            },
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// What it is needed for.
    pub fn purpose(self) -> &'static str {
        self.traits().purpose
    }

    /// How to get it.
    pub fn hint(self) -> &'static str {
        self.traits().hint
    }

    /// Its file name without a version, which many programs open first.
    fn plain_file(self) -> String {
        format!("lib{}.so", self.traits().stem)
    }

    fn file(self, major: u32) -> String {
        format!("{}.{major}", self.plain_file())
    }
}

/// A library that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it was opened from.
    pub path: PathBuf,
}

/// A library that is not there, or that does not load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which one.
    pub library: Library,
    /// Why the files that were found did not load; nothing where none was found.
    pub reason: Option<String>,
}

impl Missing {
    /// How to get it.
    pub fn hint(&self) -> &'static str {
        self.library.hint()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traits { name, majors, .. } = self.library.traits();
        match &self.reason {
            Some(reason) => write!(out, "{name} fails to load: {reason}"),
            None => {
                let files: Vec<String> = majors.iter().map(|major| self.library.file(*major)).collect();
                write!(out, "{name} ({}) was not found", files.join(" or "))
            }
        }
    }
}

impl std::error::Error for Missing {}

/// Loads a library and keeps it for the life of the process; every open by its plain name finds this one from now on.
pub fn open(library: Library) -> Result<Found, Missing> {
    static OPENED: [OnceLock<Result<Found, Missing>>; Library::ALL.len()] =
        [const { OnceLock::new() }; Library::ALL.len()];
    OPENED[library as usize].get_or_init(|| find(library)).clone()
}

fn find(library: Library) -> Result<Found, Missing> {
    if library == Library::Cublas {
        // It opens this one by name when it is loaded.
        let _ = open(Library::CublasLt);
    }
    if library == Library::Cudnn {
        // It opens these two by name while it runs, and knows few of the places that are searched here.
        let _ = (open(Library::CublasLt), open(Library::Nvrtc));
    }
    let newest = match library.traits().kind {
        Kind::Toolkit => driver_version().map(|(major, _)| major),
        Kind::Driver | Kind::Own => None,
    };
    let found = loader::load(library, &search::candidates(library, newest, &Environment::of_this_process()))?;
    if library == Library::Nvrtc {
        // It opens this one by name when it compiles, and does not look beside itself.
        loader::load_beside(&found.path, "libnvrtc-builtins.so");
    }
    Ok(found)
}

/// The newest CUDA that the driver can run, if there is a driver.
pub fn driver_version() -> Option<(u32, u32)> {
    open(Library::Cuda).ok()?;
    loader::driver_version().map(|version| (version / 1000, version % 1000 / 10))
}

/// The Python environments that libraries are looked for in: their package folders.
pub fn python_packages() -> Vec<PathBuf> {
    Environment::of_this_process().packages()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_helps() {
        let missing = Missing { library: Library::Nvrtc, reason: None };
        assert_eq!(missing.to_string(), "NVRTC (libnvrtc.so.13 or libnvrtc.so.12) was not found");
        assert!(missing.hint().starts_with("pip install nvidia-cuda-nvrtc"));
        let broken = Missing { library: Library::Nccl, reason: Some("libnccl.so.2: not an ELF file".into()) };
        assert_eq!(broken.to_string(), "NCCL fails to load: libnccl.so.2: not an ELF file");
    }

    #[test]
    fn libraries_are_where_they_say() {
        for (place, library) in Library::ALL.into_iter().enumerate() {
            assert_eq!(library as usize, place);
        }
    }
}
