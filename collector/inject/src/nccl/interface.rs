//! NCCL's tables and what it hands them, in its own layout: `profiler_v2.h` to `profiler_v6.h` of its sources.
//!
//! Only what is read is here: descriptors begin alike, and the rest of them depends on what they describe.

use std::{
    ffi::{c_char, c_int, c_void},
    mem::offset_of,
};

/// What NCCL calls, of one version; they differ in how a communicator begins.
#[repr(C)]
pub(super) struct Table<Begin> {
    pub(super) name: &'static [u8; 10],
    pub(super) init: Begin,
    pub(super) start_event: Start,
    pub(super) stop_event: unsafe extern "C" fn(*const c_void) -> c_int,
    pub(super) record_event_state: unsafe extern "C" fn(*const c_void, c_int, *const c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// Context, place for a handle, descriptor.
pub(super) type Start = unsafe extern "C" fn(*mut c_void, *mut *const c_void, *const c_void) -> c_int;

/// Place for a context, place for the events that are wanted.
pub(super) type BeginV2 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
/// As before; then the communicator's name, hash, nodes, ranks and own rank, and a function to log with.
pub(super) type BeginV4 =
    unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;
/// The same in another order: the hash is second.
pub(super) type BeginV5 =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

/// What an event is; `Kind` is a byte until version 4 and then a word.
#[repr(C)]
pub(super) struct Descriptor<Kind, Body> {
    pub(super) kind: Kind,
    pub(super) parent: *const c_void,
    pub(super) rank: c_int,
    pub(super) body: Body,
}

/// A collective of versions 2 and 3.
#[repr(C)]
pub(super) struct CollectiveV3 {
    pub(super) name: *const c_char,
    pub(super) hash: u64,
    pub(super) sequence: u64,
    pub(super) function: *const c_char,
    pub(super) send: *const c_void,
    pub(super) receive: *const c_void,
    pub(super) count: usize,
    pub(super) root: c_int,
    pub(super) element_type: *const c_char,
}

/// A collective of version 2, which says more.
#[repr(C)]
pub(super) struct CollectiveV2 {
    pub(super) collective: CollectiveV3,
    /// What is sent and received over all ranks: of what is gathered or scattered, the whole.
    pub(super) traffic_bytes: usize,
}

/// A message of versions 2 and 3.
#[repr(C)]
pub(super) struct MessageV3 {
    pub(super) name: *const c_char,
    pub(super) hash: u64,
    pub(super) message: MessageV4,
}

/// A collective from version 4 on.
#[repr(C)]
pub(super) struct CollectiveV4 {
    pub(super) sequence: u64,
    pub(super) function: *const c_char,
    pub(super) send: *const c_void,
    pub(super) receive: *const c_void,
    pub(super) count: usize,
    pub(super) root: c_int,
    pub(super) element_type: *const c_char,
}

/// A message from version 4 on.
#[repr(C)]
pub(super) struct MessageV4 {
    pub(super) function: *const c_char,
    pub(super) buffer: *const c_void,
    pub(super) element_type: *const c_char,
    pub(super) count: usize,
    pub(super) peer: c_int,
}

/// A call of a collective, from version 5 on.
#[repr(C)]
pub(super) struct CollectiveCall {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) element_type: *const c_char,
}

/// A call of a send or a receive, from version 5 on.
#[repr(C)]
pub(super) struct MessageCall {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) element_type: *const c_char,
    pub(super) stream: *const c_void,
    /// Whether a graph is made of it, which launches it later and again.
    pub(super) captured: u8,
}

// What a C compiler makes of the headers on the machines that have CUDA.
const _: () = {
    type Body = Descriptor<u8, CollectiveV2>;
    assert!(size_of::<usize>() == 8 && size_of::<Table<BeginV2>>() == 48);
    assert!(offset_of!(Descriptor<u8, u64>, body) == 24 && offset_of!(Descriptor<u64, u64>, body) == 24);
    assert!(offset_of!(Descriptor<u8, u64>, rank) == 16 && offset_of!(Descriptor<u64, u64>, rank) == 16);
    assert!(offset_of!(Body, body.collective.hash) == 32 && offset_of!(Body, body.collective.sequence) == 40);
    assert!(offset_of!(Body, body.collective.function) == 48 && offset_of!(Body, body.collective.count) == 72);
    assert!(offset_of!(Body, body.collective.element_type) == 88 && offset_of!(Body, body.traffic_bytes) == 96);
    assert!(offset_of!(MessageV3, hash) == 8 && offset_of!(MessageV3, message) == 16);
    assert!(offset_of!(CollectiveV4, function) == 8 && offset_of!(CollectiveV4, count) == 32);
    assert!(offset_of!(CollectiveV4, root) == 40 && offset_of!(CollectiveV4, element_type) == 48);
    assert!(offset_of!(MessageV4, element_type) == 16 && offset_of!(MessageV4, count) == 24);
    assert!(offset_of!(MessageV4, peer) == 32);
    assert!(offset_of!(CollectiveCall, count) == 8 && offset_of!(CollectiveCall, element_type) == 16);
    assert!(offset_of!(MessageCall, captured) == 32);
};
