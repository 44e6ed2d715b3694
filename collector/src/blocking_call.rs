//! Calls of the driver that keep the host from launching, by their names.

/// The driver's calls that block, without what later versions append to their names.
const CALLS: [&str; 16] = [
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemcpyDtoH",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemAddressReserve",
    "cuMemHostAlloc",
    "cuMemAllocHost",
    "cuMemFreeHost",
    "cuMemHostRegister",
];

/// One of the calls that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockingCall(u8);

impl BlockingCall {
    /// The call of a name, if it is one.
    pub(crate) fn named(name: &[u8]) -> Option<BlockingCall> {
        let is_it = |call: &str| {
            let version = name.strip_prefix(call.as_bytes());
            version.is_some_and(|version| version.is_empty() || version.starts_with(b"_"))
        };
        CALLS.iter().position(|call| is_it(call)).map(|place| BlockingCall(place as u8))
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        CALLS[usize::from(self.0)]
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::DriverCall;

    use super::*;

    #[test]
    fn calls_that_block_are_told_by_their_names_and_the_analyzer_knows_each() {
        let call = |name: &str| BlockingCall::named(name.as_bytes()).map(BlockingCall::name);
        assert_eq!(call("cuStreamSynchronize_ptsz"), Some("cuStreamSynchronize"));
        assert_eq!(call("cuMemFree_v2"), Some("cuMemFree"));
        assert_eq!(call("cuMemFreeHost"), Some("cuMemFreeHost"));
        assert_eq!(["cuMemAllocAsync", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel"].map(call), [None; 3]);
        assert!(CALLS.iter().all(|call| DriverCall::of(call).is_some()));
    }
}
