//! What calls of the host into the driver do besides launching work.

/// What CUPTI does for whoever records, as Kineto calls it.
const OF_RECORDER: [&str; 5] =
    ["Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "UVM Activity Init"];

/// What a call of the host into the driver does besides launching work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCall {
    /// It waits for the device.
    Waits,
    /// It takes or gives back memory of the device, or memory that the device can reach.
    Allocates,
    /// It loads code.
    Loads,
    /// It is there because somebody records.
    Records,
}

impl DriverCall {
    /// What a call does, by the name that CUDA or HIP gives it; none, of one that only launches.
    pub fn of(name: &str) -> Option<DriverCall> {
        if OF_RECORDER.contains(&name) {
            return Some(DriverCall::Records);
        }
        let call = ["cuda", "hip", "cu"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
        // Versions are appended: `cuMemAlloc_v2`, `cudaMalloc_v3020`, `cuStreamSynchronize_ptsz`.
        let call = call.split("_v").next().unwrap_or(call);
        let call = call.split("_pt").next().unwrap_or(call);
        if call.ends_with("Synchronize") {
            return Some(DriverCall::Waits);
        }
        // Without "Async", a copy to the host returns when it is there.
        let copies = ["Memcpy", "MemcpyDtoH", "MemcpyWithStream", "MemcpyToSymbol", "MemcpyFromSymbol", "Memcpy2D"];
        if copies.contains(&call) {
            return Some(DriverCall::Waits);
        }
        if ["ModuleLoad", "LibraryLoad"].iter().any(|loads| call.starts_with(loads)) {
            return Some(DriverCall::Loads);
        }
        let takes = ["Malloc", "Free", "MemAlloc", "MemFree", "HostAlloc", "FreeHost", "MallocHost", "HostRegister"];
        let managed = ["MallocManaged", "MemAllocManaged", "ExtMallocWithFlags"];
        let virtual_memory = ["MemCreate", "MemMap", "MemUnmap", "MemRelease", "MemSetAccess", "MemAddressReserve"];
        let host = ["MemHostAlloc", "MemAllocHost", "MemFreeHost", "MemHostRegister", "HostMalloc", "HostFree"];
        let all = takes.iter().chain(&managed).chain(&virtual_memory).chain(&host);
        all.into_iter().any(|taking| *taking == call).then_some(DriverCall::Allocates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_are_told_from_those_that_launch() {
        for (name, does) in [
            ("cudaStreamSynchronize", Some(DriverCall::Waits)),
            ("cudaDeviceSynchronize", Some(DriverCall::Waits)),
            ("cuCtxSynchronize", Some(DriverCall::Waits)),
            ("cuStreamSynchronize_ptsz", Some(DriverCall::Waits)),
            ("cuMemAllocHost_v2", Some(DriverCall::Allocates)),
            ("hipEventSynchronize", Some(DriverCall::Waits)),
            ("cudaMemcpy", Some(DriverCall::Waits)),
            ("cuMemcpyDtoH_v2", Some(DriverCall::Waits)),
            ("hipMemcpyWithStream", Some(DriverCall::Waits)),
            ("cudaMemcpyAsync", None),
            ("cudaMalloc", Some(DriverCall::Allocates)),
            ("cudaMallocManaged", Some(DriverCall::Allocates)),
            ("cuLibraryLoadData", Some(DriverCall::Loads)),
            ("hipModuleLoadData", Some(DriverCall::Loads)),
            ("cudaMalloc_v3020", Some(DriverCall::Allocates)),
            ("cuMemAlloc_v2", Some(DriverCall::Allocates)),
            ("cuMemMap", Some(DriverCall::Allocates)),
            ("hipFree", Some(DriverCall::Allocates)),
            ("cudaMallocAsync", None),
            ("cudaLaunchKernel", None),
            ("cudaLaunchKernelExC_v11060", None),
            ("cudaStreamWaitEvent", None),
            ("Activity Buffer Request", Some(DriverCall::Records)),
            // The program would wait for these without a recorder, too.
            ("Command Buffer Full", None),
            ("Lazy Function Loading", None),
            ("aten::item", None),
            ("", None),
        ] {
            assert_eq!(DriverCall::of(name), does, "{name}");
        }
    }
}
