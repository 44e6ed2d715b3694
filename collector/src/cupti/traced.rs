//! What is traced: which kinds of records, and which calls of the driver, told by their names.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cudarc::cupti::sys::CUpti_ActivityKind as Kind;

/// What is recorded beside kernels, copies and fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Memory that the driver hands out, and its pools: for a program that does not record its memory itself.
    pub memory: bool,
    /// Graphs as one piece of work each, and not the kernels in them: next to nothing, where those cost most.
    pub whole_graphs: bool,
}

/// Whether records of memory have been asked for.
static MEMORY_IS_TRACED: AtomicBool = AtomicBool::new(false);

/// Says that records of these kinds will come.
pub(crate) fn will_come(traced: Traced) {
    MEMORY_IS_TRACED.fetch_or(traced.memory, Relaxed);
}

/// Whether there are records of memory.
pub(crate) fn memory_is_traced() -> bool {
    MEMORY_IS_TRACED.load(Relaxed)
}

/// The kinds of records that it takes.
pub(crate) fn kinds(traced: Traced) -> impl Iterator<Item = Kind> {
    let work = [
        Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        Kind::CUPTI_ACTIVITY_KIND_MEMCPY,
        Kind::CUPTI_ACTIVITY_KIND_MEMCPY2,
        Kind::CUPTI_ACTIVITY_KIND_MEMSET,
    ];
    let memory = [Kind::CUPTI_ACTIVITY_KIND_MEMORY2, Kind::CUPTI_ACTIVITY_KIND_MEMORY_POOL];
    let graphs = [Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE].into_iter().filter(move |_| traced.whole_graphs);
    work.into_iter().chain(graphs).chain(memory.into_iter().filter(move |_| traced.memory))
}

/// Calls that put work on a device: of the driver, and of the runtime, which calls that.
pub(crate) fn launches_work(name: &[u8]) -> bool {
    let transfers = ["cuMemcpy", "cu64Memcpy", "cuMemset", "cu64Memset"];
    let by_runtime = ["cudaLaunch", "__cudaLaunch", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset"];
    launches_kernels(name)
        || transfers.iter().chain(&by_runtime).any(|prefix| name.starts_with(prefix.as_bytes()))
            && !name.starts_with(b"cudaLaunchHostFunc")
}

/// Calls that take memory of a device or give it back.
pub(crate) fn changes_memory(name: &[u8]) -> bool {
    ["cuMemAlloc", "cu64MemAlloc", "cuMemFree", "cu64MemFree", "cuMemPool"]
        .iter()
        .any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Calls that launch kernels.
pub(crate) fn launches_kernels(name: &[u8]) -> bool {
    (name.starts_with(b"cuLaunch") && !name.starts_with(b"cuLaunchHostFunc")) || name.starts_with(b"cuGraphLaunch")
}

/// Calls that launch just one.
pub(crate) fn launches_one_kernel(name: &[u8]) -> bool {
    name.starts_with(b"cuLaunchKernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_names() {
        for name in [
            "cuLaunchKernel",
            "cuLaunchKernel_ptsz",
            "cuLaunchKernelEx_ptsz",
            "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernelMultiDevice",
            "cuGraphLaunch_ptsz",
        ] {
            assert!(launches_work(name.as_bytes()) && launches_kernels(name.as_bytes()), "{name}");
            assert_eq!(launches_one_kernel(name.as_bytes()), name.contains("LaunchKernel"), "{name}");
        }
        for name in
            ["cuMemcpyHtoDAsync_v2", "cuMemcpyBatchAsync_ptsz", "cuMemsetD2D32Async", "cuMemcpy", "cu64MemsetD8"]
        {
            assert!(launches_work(name.as_bytes()) && !launches_kernels(name.as_bytes()), "{name}");
        }
        for name in
            ["cudaLaunchKernel_v7000", "__cudaLaunchKernel_v13000", "cudaMemcpyAsync_v3020", "cudaGraphLaunch_v10000"]
        {
            assert!(launches_work(name.as_bytes()), "{name}");
        }
        for name in [
            "cudaLaunchHostFunc_v10000",
            "cudaGetDevice_v3020",
            "cudaStreamIsCapturing_v10000",
            "cuLaunchHostFunc",
            "cuMemSetAccess",
            "cuGraphAddMemcpyNode",
            "cuMemPrefetchAsync",
            "cuMemAlloc_v2",
        ] {
            assert!(!launches_work(name.as_bytes()), "{name}");
        }
        for name in ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemFreeAsync_ptsz", "cuMemPoolTrimTo"] {
            assert!(changes_memory(name.as_bytes()), "{name}");
        }
    }
}
