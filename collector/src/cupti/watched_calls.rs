//! The calls of the driver that are watched, by their numbers, and what each is to us. Their names say so, which are looked at
//! once: a launch is no time for it.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{driver_memory, traced};
use crate::blocking_call::BlockingCall;

/// What a call puts on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchedWork {
    OneKernel,
    /// Several, or a graph.
    Kernels,
    /// A copy or a fill.
    Transfer,
}

/// What a call is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchedCall {
    pub(crate) launches: Option<LaunchedWork>,
    /// Whether it takes memory or gives it back, of which there may be a record.
    pub(crate) changes_memory: bool,
    /// Whether it says who holds memory of the device.
    pub(crate) says_holder: bool,
    pub(crate) blocks: Option<BlockingCall>,
    /// Whether it is of a graph: made, recorded or launched.
    is_of_graph: bool,
}

impl WatchedCall {
    /// The call of a name, if it is watched.
    fn named(name: &str) -> Option<WatchedCall> {
        let bytes = name.as_bytes();
        let launches = match bytes {
            _ if traced::launches_one_kernel(bytes) => Some(LaunchedWork::OneKernel),
            _ if traced::launches_kernels(bytes) => Some(LaunchedWork::Kernels),
            _ if traced::launches_work(bytes) => Some(LaunchedWork::Transfer),
            _ => None,
        };
        let graphs = ["cuGraphInstantiate", "cuGraphLaunch", "cuStreamBeginCapture"];
        let call = WatchedCall {
            launches,
            changes_memory: traced::changes_memory(bytes),
            says_holder: driver_memory::CALLS.contains(&name),
            blocks: BlockingCall::named(bytes),
            is_of_graph: graphs.iter().any(|prefix| name.starts_with(prefix)),
        };
        let nothing =
            WatchedCall { launches: None, changes_memory: false, says_holder: false, blocks: None, is_of_graph: false };
        (call != nothing).then_some(call)
    }
}

/// By their numbers.
static CALLS: OnceLock<Vec<Option<WatchedCall>>> = OnceLock::new();
/// Whether the program has graphs, or is about to.
static GRAPHS: AtomicBool = AtomicBool::new(false);

/// The numbers of the calls to watch, of all that the driver has. Those of later versions are found too.
pub(crate) fn numbers(all: impl FnOnce() -> Vec<(u32, String)>) -> impl Iterator<Item = u32> {
    let calls = CALLS.get_or_init(|| {
        let mut calls = Vec::new();
        for (number, name) in all() {
            let place = number as usize;
            calls.resize(calls.len().max(place + 1), None);
            calls[place] = WatchedCall::named(&name);
        }
        calls
    });
    let is_watched = |(place, call): (usize, &Option<WatchedCall>)| call.map(|_| place as u32);
    calls.iter().enumerate().filter_map(is_watched)
}

/// The numbers of the calls that make, record and launch graphs.
pub(crate) fn numbers_of_graphs() -> impl Iterator<Item = u32> {
    let calls = CALLS.get().map_or(&[][..], Vec::as_slice).iter().enumerate();
    calls.filter(|(_, call)| call.is_some_and(|call| call.is_of_graph)).map(|(place, _)| place as u32)
}

/// The call of a number, if it is watched.
#[inline]
pub(crate) fn numbered(number: u32) -> Option<&'static WatchedCall> {
    let call = CALLS.get()?.get(number as usize)?.as_ref()?;
    if call.is_of_graph {
        GRAPHS.store(true, Relaxed);
    }
    Some(call)
}

/// Whether the program has made a graph while it was watched.
pub(crate) fn has_graphs() -> bool {
    GRAPHS.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_what_their_names_say() {
        let launches = |name| WatchedCall::named(name).unwrap().launches;
        assert_eq!(launches("cuLaunchKernelEx_ptsz"), Some(LaunchedWork::OneKernel));
        assert_eq!(launches("cuLaunchCooperativeKernelMultiDevice"), Some(LaunchedWork::Kernels));
        assert_eq!(launches("cuGraphLaunch"), Some(LaunchedWork::Kernels));
        assert_eq!(launches("cuMemsetD8Async"), Some(LaunchedWork::Transfer));
        let copy = WatchedCall::named("cuMemcpyDtoH_v2").unwrap();
        assert_eq!((copy.launches, copy.blocks.is_some()), (Some(LaunchedWork::Transfer), true));
        let taken = WatchedCall::named("cuMemAlloc_v2").unwrap();
        assert_eq!(
            (taken.launches, taken.changes_memory, taken.says_holder, taken.blocks.is_some()),
            (None, true, true, true)
        );
        assert_eq!(["cuDeviceGet", "cuLaunchHostFunc", "cuCtxGetCurrent"].map(WatchedCall::named), [None; 3]);
        assert!(WatchedCall::named("cuGraphInstantiateWithFlags").unwrap().is_of_graph && !taken.is_of_graph);
    }

    #[test]
    fn calls_are_found_by_their_numbers() {
        let all =
            || vec![(307, "cuLaunchKernel".to_owned()), (2, "cuDeviceGet".to_owned()), (5, "cuMemFree_v2".to_owned())];
        assert_eq!(numbers(all).collect::<Vec<_>>(), [5, 307]);
        assert_eq!(numbers_of_graphs().count(), 0);
        assert_eq!(numbered(307).unwrap().launches, Some(LaunchedWork::OneKernel));
        assert!(numbered(2).is_none() && numbered(9999).is_none() && !has_graphs());
    }
}
