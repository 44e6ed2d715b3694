//! Who holds memory of the device, told by the libraries that called for it.

/// Who holds memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Nccl,
    Cublas,
    Cudnn,
    Nvshmem,
    /// PyTorch's symmetric memory.
    SymmetricMemory,
    /// Another library.
    Other,
    /// The program and its allocator, which say themselves what they take; and whoever cannot be told.
    Program,
    /// Code and data of the kernels that were loaded.
    Modules,
    /// What kernels spill to, and their stacks.
    LocalMemory,
}

impl Holder {
    pub(crate) const ALL: [Holder; 9] = [
        Holder::Nccl,
        Holder::Cublas,
        Holder::Cudnn,
        Holder::Nvshmem,
        Holder::SymmetricMemory,
        Holder::Other,
        Holder::Program,
        Holder::Modules,
        Holder::LocalMemory,
    ];

    /// Its counter in a recording.
    pub(crate) fn counter(self) -> &'static str {
        match self {
            Holder::Nccl => "memory.nccl",
            Holder::Cublas => "memory.cublas",
            Holder::Cudnn => "memory.cudnn",
            Holder::Nvshmem => "memory.nvshmem",
            Holder::SymmetricMemory => "memory.symmetric",
            Holder::Other => "memory.other",
            Holder::Program => "memory.program",
            Holder::Modules => "memory.modules",
            Holder::LocalMemory => "memory.local",
        }
    }

    /// Who called the driver, by the files of its callers, the nearest first. Those before the driver's are ours and CUPTI's.
    pub(crate) fn of_callers<'a>(files: impl Iterator<Item = &'a [u8]>, allocation: Allocation) -> Holder {
        let names = files.map(|file| file.rsplit(|byte| *byte == b'/').next().unwrap_or(file));
        let caller = names.skip_while(|name| !is_of_cuda(name)).find(|name| !is_of_cuda(name));
        caller.map_or(Holder::Program, |name| Holder::of_library(name, allocation))
    }

    fn of_library(name: &[u8], allocation: Allocation) -> Holder {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
        let is_library = name.windows(3).any(|part| part == b".so");
        if begins(&["libnccl", "librccl"]) {
            Holder::Nccl
        } else if begins(&["libcublas"]) {
            Holder::Cublas
        } else if begins(&["libcudnn"]) {
            Holder::Cudnn
        } else if begins(&["libnvshmem"]) {
            Holder::Nvshmem
        } else if begins(&["libtorch_cuda"]) && allocation == Allocation::Physical {
            Holder::SymmetricMemory
        } else if begins(&["libc10_cuda"]) || !is_library {
            Holder::Program
        } else {
            Holder::Other
        }
    }
}

/// How memory was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// With an address, as by `cuMemAlloc`.
    Mapped,
    /// By a handle, as by `cuMemCreate`.
    Physical,
}

/// Whether a file is of the driver, the runtime or CUPTI.
fn is_of_cuda(name: &[u8]) -> bool {
    ["libcuda", "libcupti", "libnvidia-"].iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str], allocation: Allocation) -> Holder {
        Holder::of_callers(files.iter().map(|file| file.as_bytes()), allocation)
    }

    #[test]
    fn the_nearest_library_outside_of_cuda_holds_what_it_asked_for() {
        let below =
            ["/cache/5f3a.so", "/usr/local/cuda/lib64/libcupti.so.13", "/lib/libcuda.so.1", "libcudart-a1.so.13"];
        let called = |library: &str| {
            let stack =
                [&below[..], &[library, "/site-packages/torch/lib/libtorch_cuda.so", "/usr/bin/python3"]].concat();
            of(&stack, Allocation::Mapped)
        };
        for (library, holder) in [
            ("/nvidia/nccl/lib/libnccl.so.2", Holder::Nccl),
            ("librccl.so.1", Holder::Nccl),
            ("/nvidia/cu13/lib/libcublas.so.13", Holder::Cublas),
            ("libcublasLt.so.13", Holder::Cublas),
            ("libcudnn_engines_precompiled.so.9", Holder::Cudnn),
            ("libnvshmem_host.so.3", Holder::Nvshmem),
            ("/site-packages/torch/lib/libc10_cuda.so", Holder::Program),
            ("/home/user/train", Holder::Program),
            ("libcusolver.so.12", Holder::Other),
            ("_C.cpython-312-x86_64-linux-gnu.so", Holder::Other),
            ("libtorch_cuda.so", Holder::Other),
        ] {
            assert_eq!(called(library), holder, "{library}");
        }
    }

    #[test]
    fn handles_of_pytorch_are_symmetric_memory_unless_its_allocator_asked() {
        let stack = |library| of(&["ours", "libcupti.so.13", "libcuda.so.1", library], Allocation::Physical);
        assert_eq!(stack("libtorch_cuda.so"), Holder::SymmetricMemory);
        assert_eq!(stack("libc10_cuda.so"), Holder::Program);
        assert_eq!(stack("libnccl.so.2"), Holder::Nccl);
    }

    #[test]
    fn a_caller_that_cannot_be_told_is_the_program() {
        assert_eq!(of(&[], Allocation::Mapped), Holder::Program);
        assert_eq!(of(&["ours.so", "libcupti.so.13", "libcuda.so.1"], Allocation::Mapped), Holder::Program);
        // The stack ends before CUPTI: nothing is known of who is behind it.
        assert_eq!(of(&["ours.so"], Allocation::Mapped), Holder::Program);
    }

    #[test]
    fn every_holder_has_a_counter_of_its_own() {
        let counters = Holder::ALL.map(Holder::counter);
        let different: std::collections::BTreeSet<&str> = counters.into_iter().collect();
        assert_eq!(different.len(), Holder::ALL.len());
        assert!(Holder::ALL.iter().enumerate().all(|(place, holder)| *holder as usize == place));
    }
}
