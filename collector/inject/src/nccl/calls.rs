//! What NCCL finds and calls, on the program's threads. None of it blocks for long, panics, or fails.

use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Arc,
};

use stepscope_traces::Membership;

use super::{
    communicator::{Communicator, Identity, group},
    event::{V2, V3, V4, V5, Version, WANTED},
    here::{self, Handle},
    in_flight,
    interface::{BeginV2, BeginV4, BeginV5, Start, Table},
    members,
};
use crate::{c_text, process};

const SUCCESS: c_int = 0;

/// What NCCL calls us.
static NAME: [u8; 10] = *b"stepscope\0";

/// Handles are places of our own, which NCCL keeps and does not look at.
static HANDLES: [u8; 2] = [0; 2];

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $begin:ty = $init:expr, $start:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "NCCL looks for it by this name")]
        static $name: Table<$begin> = Table {
            name: &NAME,
            init: $init,
            start_event: $start,
            stop_event,
            record_event_state,
            finalize,
        };
    )*};
}

tables! {
    /// For NCCL 2.24 and 2.25.
    ncclProfiler_v2: BeginV2 = begin_unknown::<2>, start::<V2> as Start;
    /// For NCCL 2.26.
    ncclProfiler_v3: BeginV2 = begin_unknown::<3>, start::<V3> as Start;
    /// For NCCL 2.27.
    ncclProfiler_v4: BeginV4 = begin_v4, start::<V4> as Start;
    /// For NCCL 2.28.
    ncclProfiler_v5: BeginV5 = begin_from_5_on::<5>, start::<V5> as Start;
    /// For NCCL 2.29 and later.
    ncclProfiler_v6: BeginV5 = begin_from_5_on::<6>, start::<V5> as Start;
}

/// Begins a communicator: says which events are wanted, and keeps what is known of it.
///
/// # Safety
///
/// As all of these: called by NCCL, as its headers say.
unsafe fn begin(version: u8, context: *mut *mut c_void, wanted: *mut c_int, known: Option<(Identity, Membership)>) {
    process::be_quiet();
    process::settle();
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let membership = known.as_ref().map(|(_, membership)| membership.clone());
        let made = known.map(|(identity, membership)| Communicator::of(identity, membership));
        let communicator = Arc::new(made.unwrap_or_default());
        if !process::is_fork() {
            members::join(version, membership);
            in_flight::remember(Arc::downgrade(&communicator));
        }
        Arc::into_raw(communicator)
    }));
    // SAFETY: there are places to write to.
    unsafe {
        *context = begun.as_ref().map_or(ptr::null_mut(), |communicator| communicator.cast_mut().cast());
        *wanted = if begun.is_ok() { WANTED } else { 0 };
    }
}

unsafe extern "C" fn begin_unknown<const VERSION: u8>(context: *mut *mut c_void, wanted: *mut c_int) -> c_int {
    // SAFETY: NCCL gives two places to write to, which no one else uses meanwhile.
    unsafe { begin(VERSION, context, wanted, None) };
    SUCCESS
}

#[allow(clippy::too_many_arguments, reason = "so it is called")]
unsafe extern "C" fn begin_v4(
    context: *mut *mut c_void,
    wanted: *mut c_int,
    name: *const c_char,
    hash: u64,
    _nodes: c_int,
    size: c_int,
    index: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL gives two places to write to, and a name that is null or ends in a zero.
    unsafe { begin(4, context, wanted, known(name, hash, size, index)) };
    SUCCESS
}

#[allow(clippy::too_many_arguments, reason = "so it is called")]
unsafe extern "C" fn begin_from_5_on<const VERSION: u8>(
    context: *mut *mut c_void,
    hash: u64,
    wanted: *mut c_int,
    name: *const c_char,
    _nodes: c_int,
    size: c_int,
    index: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL gives two places to write to, and a name that is null or ends in a zero.
    unsafe { begin(VERSION, context, wanted, known(name, hash, size, index)) };
    SUCCESS
}

/// # Safety
///
/// The name is null or ends in a zero.
unsafe fn known(name: *const c_char, hash: u64, size: c_int, index: c_int) -> Option<(Identity, Membership)> {
    let (size, index) = (u32::try_from(size).ok()?, u32::try_from(index).ok()?);
    // SAFETY: as the caller promises.
    let name = Some(unsafe { c_text::read(name) }.into_owned()).filter(|name| !name.is_empty());
    Some((
        Identity { hash, size },
        Membership { group: group(hash), index: Some(index), size, name, ranks: Vec::new() },
    ))
}

unsafe extern "C" fn start<V: Version>(
    context: *mut c_void,
    handle: *mut *const c_void,
    descriptor: *const c_void,
) -> c_int {
    let heard = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: it is one of ours, which NCCL gives back only when it tells of no more of it.
        let communicator = unsafe { context.cast::<Communicator>().as_ref() }?;
        // SAFETY: it is not null, and NCCL describes events as the version that it found here does.
        let said = if descriptor.is_null() { return None } else { unsafe { V::read(descriptor) } };
        Some(here::hear(communicator, said))
    }));
    let heard = match heard.ok().flatten() {
        Some(Handle::GroupCall) => ptr::from_ref(&HANDLES[0]).cast(),
        Some(Handle::Plan) => ptr::from_ref(&HANDLES[1]).cast(),
        Some(Handle::None) | None => ptr::null(),
    };
    if !handle.is_null() {
        // SAFETY: there is a place to write to.
        unsafe { *handle = heard };
    }
    SUCCESS
}

unsafe extern "C" fn stop_event(handle: *const c_void) -> c_int {
    let ended = [Handle::GroupCall, Handle::Plan].into_iter().zip(&HANDLES);
    let ended = ended.filter(|(_, place)| ptr::eq(ptr::from_ref(*place).cast(), handle));
    drop(catch_unwind(|| ended.for_each(|(handle, _)| here::end(handle))));
    SUCCESS
}

unsafe extern "C" fn record_event_state(_: *const c_void, _: c_int, _: *const c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    if !context.is_null() {
        // SAFETY: it is one of ours, and NCCL tells of no more of it.
        drop(unsafe { Arc::from_raw(context.cast::<Communicator>()) });
    }
    SUCCESS
}
