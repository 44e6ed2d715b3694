//! CUPTI itself: the calls we make.
#![allow(unsafe_code)]

use std::{
    collections::HashSet,
    ffi::{CStr, c_char},
    ptr,
    sync::OnceLock,
};

use cudarc::{
    cupti::sys::{self, CUpti_ActivityFlag, CUpti_ActivityKind, CUpti_CallbackDomain, CUptiResult},
    driver::{CudaStream, sys::cuDriverGetVersion},
};

use super::{
    buffers::BUFFERS,
    callbacks,
    calls::{Call, CallKind},
    driver_memory, modules,
    record_form::RecordForm,
    records::Next,
    short_calls,
    streams::CuptiStream,
    subscriber::{self, DETACHING, LAST_CALL},
    traced::{self, Traced, kinds, launches_work},
    unavailable::Unavailable,
    watched_calls,
};
use crate::libraries::{self, Library};

const DRIVER: CUpti_CallbackDomain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
const RUNTIME: CUpti_CallbackDomain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RUNTIME_API;
/// From this version on records of single calls can be asked for: that of CUDA 12.5.
const RECORDS_SINGLE_CALLS: u32 = 23;
const RESOURCE: CUpti_CallbackDomain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE;

/// Attaches CUPTI to this process, and tells its version.
pub(crate) fn attach(traced: Traced) -> Result<u32, Unavailable> {
    libraries::open(Library::Cuda)?;
    libraries::open(Library::Cupti)?;
    let mut subscriber = ptr::null_mut();
    // SAFETY: the libraries are there, so are the functions; the callback wants no data.
    check("be subscribed to", unsafe {
        sys::cuptiSubscribe(&mut subscriber, Some(callbacks::called), ptr::null_mut())
    })?;
    subscriber::keep(subscriber);
    let outcome = set_up(traced);
    if outcome.is_ok() {
        return outcome;
    }
    disable();
    let were_short = short_calls::give_up();
    detach();
    // Nothing of this attempt is to be read.
    BUFFERS.clear();
    // A CUPTI that refuses short records may still write whole ones.
    if were_short { attach(traced) } else { outcome }
}

fn set_up(traced: Traced) -> Result<u32, Unavailable> {
    let version = version()?;
    match short_calls::begin(version, callbacks::buffer_requested_by_subscriber, callbacks::short_records_completed) {
        Some(result) => check("write short records", result)?,
        None => register_buffers()?,
    }
    enable(traced)?;
    // Records whose clock cannot be read have no times.
    if short_calls::are_used() && timestamp().is_none() {
        return Err(Unavailable::Refused { attempt: "tell the time", reason: "to a subscriber".into() });
    }
    Ok(version)
}

/// Traces what runs while another profiler of this process is subscribed to CUPTI and traces nothing: launches are then told by
/// records. Tells CUPTI's version.
pub(crate) fn attach_beside(traced: Traced) -> Result<u32, Unavailable> {
    let version = version()?;
    if version < RECORDS_SINGLE_CALLS {
        return Err(Unavailable::AnotherClient);
    }
    register_buffers()?;
    record_launches().and_then(|()| enable_kinds(traced)).map(|()| version).inspect_err(|_| disable())
}

fn version() -> Result<u32, Unavailable> {
    let mut version = 0;
    // SAFETY: a place to write to.
    check("tell its version", unsafe { sys::cuptiGetVersion(&mut version) })?;
    Ok(version)
}

fn register_buffers() -> Result<(), Unavailable> {
    let (requested, completed) = (Some(callbacks::buffer_requested as _), Some(callbacks::buffer_completed as _));
    // SAFETY: they are functions of this program, which stays.
    check("take our buffers", unsafe { sys::cuptiActivityRegisterCallbacks(requested, completed) })
}

/// Whether what is recorded of a call is that it launches something.
pub(crate) fn is_launch(call: &Call) -> bool {
    static LAUNCHES: OnceLock<HashSet<(CallKind, u32)>> = OnceLock::new();
    let launches = LAUNCHES.get_or_init(|| {
        let launching = |kind: CallKind| {
            let launching = calls(domain(kind)).filter(|(_, name)| launches_work(name.as_bytes()));
            launching.map(move |(number, _)| (kind, number))
        };
        CallKind::ALL.into_iter().flat_map(launching).collect()
    });
    launches.contains(&(call.kind, call.number))
}

/// Has the calls that launch something recorded. Those that do not are left out, as far as CUPTI lets them be: they are many.
fn record_launches() -> Result<(), Unavailable> {
    for kind in CallKind::ALL {
        // SAFETY: callbacks for buffers are registered.
        check("record launches", unsafe { sys::cuptiActivityEnable(records_of(kind)) })?;
        let others = calls(domain(kind)).filter(|(_, name)| !launches_work(name.as_bytes()));
        // SAFETY: they are calls of that kind.
        others.for_each(|(number, _)| unsafe {
            match kind {
                CallKind::Driver => sys::cuptiActivityEnableDriverApi(number, 0),
                CallKind::Runtime => sys::cuptiActivityEnableRuntimeApi(number, 0),
            };
        });
    }
    Ok(())
}

fn domain(kind: CallKind) -> CUpti_CallbackDomain {
    match kind {
        CallKind::Driver => DRIVER,
        CallKind::Runtime => RUNTIME,
    }
}

fn records_of(kind: CallKind) -> CUpti_ActivityKind {
    match kind {
        CallKind::Driver => CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_DRIVER,
        CallKind::Runtime => CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_RUNTIME,
    }
}

/// Traces these kinds too.
pub(crate) fn enable(traced: Traced) -> Result<(), Unavailable> {
    traced::will_come(traced);
    driver_memory::prepare();
    let wanted = watched_calls::numbers(|| calls(DRIVER).collect());
    // SAFETY: there is a subscriber; one call after the other.
    let watch = |domain, call| is_success(unsafe { sys::cuptiEnableCallback(1, subscriber::current(), domain, call) });
    for resource in modules::RESOURCES {
        // Without it, the ledger of memory has nothing of modules.
        watch(RESOURCE, resource);
    }
    // Some are of long ago, and whether they can be watched is no matter.
    let watched = wanted.filter(|call| watch(DRIVER, *call));
    if watched.count() == 0 {
        return Err(Unavailable::Refused { attempt: "watch launches", reason: "none can be watched".into() });
    }
    enable_kinds(traced)
}

fn enable_kinds(traced: Traced) -> Result<(), Unavailable> {
    for kind in kinds(traced) {
        let result = match short_calls::are_used() {
            true => short_calls::enable(kind),
            // SAFETY: callbacks for buffers are registered.
            false => unsafe { sys::cuptiActivityEnable(kind) },
        };
        check("trace what runs", result)?;
    }
    Ok(())
}

/// The calls of the driver or of the runtime, by their numbers.
fn calls(domain: CUpti_CallbackDomain) -> impl Iterator<Item = (u32, String)> {
    // The driver has some 870 in CUDA 13.4.
    const MOST_CALLS: u32 = 2048;
    (1..MOST_CALLS).filter_map(move |call| {
        let mut name: *const c_char = ptr::null();
        // SAFETY: a place to write to; what is written there is a constant of CUPTI.
        let result = unsafe { sys::cuptiGetCallbackName(domain, call, &mut name) };
        // SAFETY: CUPTI wrote it, it is not null, and names of calls are constants that end in a zero.
        let name = (is_success(result) && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        name.map(|name| (call, name.to_string_lossy().into_owned()))
    })
}

/// Traces nothing from now on, and watches no calls.
pub(crate) fn disable() {
    if subscriber::is_there() {
        // SAFETY: the subscriber is ours, and there. Otherwise launches take longer until CUPTI is let go of.
        unsafe { sys::cuptiEnableDomain(0, subscriber::current(), DRIVER) };
        // Whether there are graphs matters until then.
        for call in watched_calls::numbers_of_graphs() {
            // SAFETY: the subscriber is ours, and its callback takes calls of the driver, of which this is one.
            unsafe { sys::cuptiEnableCallback(1, subscriber::current(), DRIVER, call) };
        }
    }
    let all = || kinds(Traced { memory: true, whole_graphs: true });
    if short_calls::are_used() {
        all().for_each(short_calls::disable);
        return;
    }
    for kind in all().chain(CallKind::ALL.map(records_of)) {
        // SAFETY: CUPTI is loaded. A kind that was not enabled is none to worry about.
        unsafe { sys::cuptiActivityDisable(kind) };
    }
}

/// Lets CUPTI hand over the buffers in which every record is complete; or all of them, and what is not complete is lost.
pub(crate) fn flush(forced: bool) {
    let flag = if forced { CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_FLUSH_FORCED as u32 } else { 0 };
    // SAFETY: CUPTI is loaded, and its callbacks for buffers are registered. If it fails, the buffers come later or not at all,
    // which is then counted.
    unsafe { sys::cuptiActivityFlushAll(flag) };
}

/// How many records CUPTI had no room for, since this was asked last.
pub(crate) fn take_dropped() -> u64 {
    if short_calls::are_used() {
        return short_calls::dropped().unwrap_or(0) as u64;
    }
    let mut dropped = 0;
    // SAFETY: a place to write to; all buffers are global, those of no context.
    let result = unsafe { sys::cuptiActivityGetNumDroppedRecords(ptr::null_mut(), 0, &mut dropped) };
    if is_success(result) { dropped as u64 } else { 0 }
}

/// Now, on the clock of the records.
pub(crate) fn timestamp() -> Option<u64> {
    if short_calls::are_used() {
        return short_calls::timestamp();
    }
    let mut timestamp = 0;
    // SAFETY: a place to write to.
    let result = unsafe { sys::cuptiGetTimestamp(&mut timestamp) };
    is_success(result).then_some(timestamp)
}

/// Tells where the records of a buffer are.
pub(crate) fn next_record<'a>(records: &'a [u8], form: &'a RecordForm) -> impl FnMut(Option<usize>) -> Next + 'a {
    move |last| {
        let start = records.as_ptr().cast_mut();
        let mut record = last.map_or(ptr::null_mut(), |last| start.wrapping_add(last).cast());
        // SAFETY: these are the records of one buffer and the last one that CUPTI found there; it writes to neither.
        let result = unsafe {
            match form {
                RecordForm::Whole => sys::cuptiActivityGetNextRecord(start, records.len(), &mut record),
                RecordForm::Short(_) => short_calls::next(records, &mut record),
            }
        };
        match result {
            CUptiResult::CUPTI_SUCCESS => Next::At((record as usize).wrapping_sub(start as usize)),
            CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED => Next::End,
            _ => Next::Broken,
        }
    }
}

/// Where what is launched on a stream runs, as records tell it.
pub(crate) fn numbers_of(stream: &CudaStream) -> Result<CuptiStream, Unavailable> {
    let context = stream.context().cu_ctx();
    let mut place = CuptiStream { context: 0, stream: 0 };
    // SAFETY: the stream and its context are there, and there are places to write to.
    unsafe {
        check("tell a context", sys::cuptiGetContextId(context, &mut place.context))?;
        check("tell a stream", sys::cuptiGetStreamIdEx(context, stream.cu_stream(), 0, &mut place.stream))?;
    }
    Ok(place)
}

/// Leaves CUPTI to whoever subscribes next, as it was.
pub(crate) fn unsubscribe() {
    // Where records would stay short for others, too, nothing of CUPTI is left, if that can be.
    if short_calls::end() || watched_calls::has_graphs() { subscriber::unsubscribe() } else { detach() }
}

/// Detaches CUPTI from this process, unless another profiler is subscribed to it. Graphs that were made while it was there may
/// not survive that: where there are any it stays, and does nothing.
pub(crate) fn detach() {
    if !subscriber::is_there() {
        return;
    }
    if watched_calls::has_graphs() {
        short_calls::end();
        return subscriber::unsubscribe();
    }
    // Other threads may be in calls that CUPTI watches. The one place from which it can be let go of then is the end of a
    // call; so we make one.
    DETACHING.set(true);
    let mut version = 0;
    // SAFETY: there is a subscriber, a driver, and a place to write to.
    unsafe {
        sys::cuptiEnableCallback(1, subscriber::current(), DRIVER, LAST_CALL);
        let _ = cuDriverGetVersion(&mut version);
    }
    if DETACHING.replace(false) {
        subscriber::finalize();
    }
}

fn is_success(result: CUptiResult) -> bool {
    result == CUptiResult::CUPTI_SUCCESS
}

fn check(attempt: &'static str, result: CUptiResult) -> Result<(), Unavailable> {
    match result {
        CUptiResult::CUPTI_SUCCESS => Ok(()),
        // Older versions have another word for it.
        CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED | CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED => {
            Err(Unavailable::AnotherClient)
        }
        CUptiResult::CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
        | CUptiResult::CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => Err(Unavailable::NotPermitted),
        other => {
            let mut text: *const c_char = ptr::null();
            // SAFETY: a place to write to.
            unsafe { sys::cuptiGetResultString(other, &mut text) };
            // SAFETY: what is written there is a constant of CUPTI.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
            let reason = text.unwrap_or_else(|| format!("error {}", other as u32));
            Err(Unavailable::Refused { attempt, reason })
        }
    }
}
