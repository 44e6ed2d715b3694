//! Who holds memory of the device, told by the libraries that called for it.

use stepscope_traces::MemoryHolder;

/// Who called the driver, by the files of its callers, the nearest first. Those before the driver's are ours and CUPTI's.
pub(crate) fn of_callers<'a>(files: impl Iterator<Item = &'a [u8]>, allocation: Allocation) -> MemoryHolder {
    let names = files.map(|file| file.rsplit(|byte| *byte == b'/').next().unwrap_or(file));
    let caller = names.skip_while(|name| !is_of_cuda(name)).find(|name| !is_of_cuda(name));
    caller.map_or(MemoryHolder::Program, |name| of_library(name, allocation))
}

fn of_library(name: &[u8], allocation: Allocation) -> MemoryHolder {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    let is_library = name.windows(3).any(|part| part == b".so");
    if begins(&["libnccl", "librccl"]) {
        MemoryHolder::Nccl
    } else if begins(&["libcublas"]) {
        MemoryHolder::Cublas
    } else if begins(&["libcudnn"]) {
        MemoryHolder::Cudnn
    } else if begins(&["libnvshmem"]) {
        MemoryHolder::Nvshmem
    } else if begins(&["libtorch_cuda"]) && allocation == Allocation::Physical {
        MemoryHolder::SymmetricMemory
    } else if begins(&["libc10_cuda"]) || !is_library {
        MemoryHolder::Program
    } else {
        MemoryHolder::Other
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

    fn of(files: &[&str], allocation: Allocation) -> MemoryHolder {
        of_callers(files.iter().map(|file| file.as_bytes()), allocation)
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
            ("/nvidia/nccl/lib/libnccl.so.2", MemoryHolder::Nccl),
            ("librccl.so.1", MemoryHolder::Nccl),
            ("/nvidia/cu13/lib/libcublas.so.13", MemoryHolder::Cublas),
            ("libcublasLt.so.13", MemoryHolder::Cublas),
            ("libcudnn_engines_precompiled.so.9", MemoryHolder::Cudnn),
            ("libnvshmem_host.so.3", MemoryHolder::Nvshmem),
            ("/site-packages/torch/lib/libc10_cuda.so", MemoryHolder::Program),
            ("/home/user/train", MemoryHolder::Program),
            ("libcusolver.so.12", MemoryHolder::Other),
            ("_C.cpython-312-x86_64-linux-gnu.so", MemoryHolder::Other),
            ("libtorch_cuda.so", MemoryHolder::Other),
        ] {
            assert_eq!(called(library), holder, "{library}");
        }
    }

    #[test]
    fn handles_of_pytorch_are_symmetric_memory_unless_its_allocator_asked() {
        let stack = |library| of(&["ours", "libcupti.so.13", "libcuda.so.1", library], Allocation::Physical);
        assert_eq!(stack("libtorch_cuda.so"), MemoryHolder::SymmetricMemory);
        assert_eq!(stack("libc10_cuda.so"), MemoryHolder::Program);
        assert_eq!(stack("libnccl.so.2"), MemoryHolder::Nccl);
    }

    #[test]
    fn a_caller_that_cannot_be_told_is_the_program() {
        assert_eq!(of(&[], Allocation::Mapped), MemoryHolder::Program);
        assert_eq!(of(&["ours.so", "libcupti.so.13", "libcuda.so.1"], Allocation::Mapped), MemoryHolder::Program);
        // The stack ends before CUPTI: nothing is known of who is behind it.
        assert_eq!(of(&["ours.so"], Allocation::Mapped), MemoryHolder::Program);
    }

    #[test]
    fn every_holder_has_a_counter_of_its_own() {
        let counters = MemoryHolder::ALL.map(MemoryHolder::counter);
        let different: std::collections::BTreeSet<&str> = counters.into_iter().collect();
        assert_eq!(different.len(), MemoryHolder::ALL.len());
        assert!(MemoryHolder::ALL.iter().enumerate().all(|(place, holder)| *holder as usize == place));
    }
}
