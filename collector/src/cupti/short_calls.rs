//! CUPTI's calls for records that have only the fields that are asked for. They are of one subscriber, who has no other records
//! then.
//!
//! What they return is a number here: newer versions have numbers that the bindings to CUPTI 13.0 do not know.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use cudarc::{
    cupti::sys::{self, CUpti_Activity, CUpti_ActivityKind, CUpti_Subscriber_st, CUptiResult},
    driver::sys::CUcontext,
};

use super::{
    record_form::{CompleteInfo, SHORT_RECORDS},
    subscriber,
};

/// From this version on. 13.3 has these calls, too, but is said not to work any more once it was let go of.
const FIRST_VERSION: u32 = 130_400;
/// `CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS`.
const ONLY_ASKED_FIELDS: c_int = 11;

type Subscriber = *mut CUpti_Subscriber_st;
/// Lends a buffer. The last argument says nothing yet.
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
/// Takes one back.
type Completed = unsafe extern "C" fn(*mut u8, usize, usize, *const CompleteInfo);

/// The calls, as CUPTI's header declares them.
struct ShortCalls {
    set: unsafe extern "C" fn(Subscriber, c_int, *mut usize, *mut c_void) -> u32,
    register: unsafe extern "C" fn(Subscriber, Requested, Completed) -> u32,
    enable: unsafe extern "C" fn(Subscriber, CUpti_ActivityKind, *const Configuration) -> u32,
    disable: unsafe extern "C" fn(Subscriber, CUpti_ActivityKind, *const Configuration) -> u32,
    next: unsafe extern "C" fn(Subscriber, *mut u8, usize, *mut *mut CUpti_Activity) -> u32,
    dropped: unsafe extern "C" fn(Subscriber, CUcontext, u32, *mut usize) -> u32,
    now: unsafe extern "C" fn(Subscriber, *mut u64) -> u32,
}

/// `CUpti_ActivityConfig` as it was first; a version that knows more goes by the size.
#[repr(C)]
struct Configuration {
    bytes: usize,
    fields: FieldSelection,
}

/// `CUpti_ActivityFieldSelection`.
#[repr(C)]
struct FieldSelection {
    bytes: usize,
    count: usize,
    fields: *const c_int,
}

/// Whether the records of our subscription are short.
static ARE_USED: AtomicBool = AtomicBool::new(false);
/// Whether CUPTI refused them before.
static ARE_REFUSED: AtomicBool = AtomicBool::new(false);

/// Has the records of our subscription short; nothing where this version of CUPTI does not, or refused before. To be called
/// before anything is enabled. What fails is to be given up.
pub(crate) fn begin(version: u32, requested: Requested, completed: Completed) -> Option<CUptiResult> {
    let calls = calls().filter(|_| version >= FIRST_VERSION && !ARE_REFUSED.load(SeqCst))?;
    ARE_USED.store(true, SeqCst);
    // SAFETY: the subscriber is ours; the functions are of this program, which stays.
    let register = || result(unsafe { (calls.register)(subscriber::current(), requested, completed) });
    Some(match set(calls, true) {
        CUptiResult::CUPTI_SUCCESS => register(),
        refused => refused,
    })
}

/// Has records whole again, for whoever subscribes next; says whether they are. To be called when nothing is enabled any more.
pub(crate) fn end() -> bool {
    let were_used = are_used();
    ARE_USED.store(false, SeqCst);
    !were_used || calls().is_some_and(|calls| set(calls, false) == CUptiResult::CUPTI_SUCCESS)
}

fn set(calls: &ShortCalls, only_asked_fields: bool) -> CUptiResult {
    let (mut bytes, mut value) = (size_of::<u8>(), u8::from(only_asked_fields));
    let place = (&raw mut value).cast();
    // SAFETY: the subscriber is ours; the value is there, and as long as it is said to be.
    result(unsafe { (calls.set)(subscriber::current(), ONLY_ASKED_FIELDS, &mut bytes, place) })
}

/// What a number means, as far as it matters here.
fn result(number: u32) -> CUptiResult {
    const KNOWN: [CUptiResult; 2] = [CUptiResult::CUPTI_SUCCESS, CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED];
    KNOWN.into_iter().find(|known| *known as u32 == number).unwrap_or(CUptiResult::CUPTI_ERROR_UNKNOWN)
}

/// Whether the records of our subscription are short.
pub(crate) fn are_used() -> bool {
    ARE_USED.load(SeqCst) && subscriber::is_there()
}

/// Has records whole from now on; says whether they were not. To be called when nothing is enabled any more.
pub(crate) fn give_up() -> bool {
    let were_used = are_used();
    ARE_REFUSED.fetch_or(were_used, SeqCst);
    end();
    were_used
}

/// Has a kind recorded.
pub(crate) fn enable(kind: CUpti_ActivityKind) -> CUptiResult {
    let record = SHORT_RECORDS.iter().find(|record| record.kind == kind as u32);
    let (Some(calls), Some(record)) = (calls(), record) else { return CUptiResult::CUPTI_ERROR_INVALID_KIND };
    let (bytes, count) = (size_of::<FieldSelection>(), record.fields.len());
    let fields = FieldSelection { bytes, count, fields: record.fields.as_ptr() };
    let configuration = Configuration { bytes: size_of::<Configuration>(), fields };
    // SAFETY: the subscriber is ours; numbers of fields are constants, and the rest is there as long as the call.
    result(unsafe { (calls.enable)(subscriber::current(), kind, &configuration) })
}

/// Has a kind recorded no longer.
pub(crate) fn disable(kind: CUpti_ActivityKind) {
    if let Some(calls) = calls() {
        // SAFETY: the subscriber is ours; nothing is to be configured. A kind that was not enabled is none to worry about.
        unsafe { (calls.disable)(subscriber::current(), kind, ptr::null()) };
    }
}

/// Goes on to the next record of a buffer.
///
/// # Safety
///
/// They are the records of one buffer, and the last one that was found there, or null.
pub(crate) unsafe fn next(records: &[u8], record: &mut *mut CUpti_Activity) -> CUptiResult {
    let Some(calls) = calls() else { return CUptiResult::CUPTI_ERROR_NOT_INITIALIZED };
    // SAFETY: as the caller promises; CUPTI does not write there.
    result(unsafe { (calls.next)(subscriber::current(), records.as_ptr().cast_mut(), records.len(), record) })
}

/// How many records CUPTI had no room for, since this was asked last.
pub(crate) fn dropped() -> Option<usize> {
    let mut dropped = 0;
    // SAFETY: a place to write to.
    let number = unsafe { (calls()?.dropped)(subscriber::current(), ptr::null_mut(), 0, &mut dropped) };
    (result(number) == CUptiResult::CUPTI_SUCCESS).then_some(dropped)
}

/// Now, on the clock of the records. Other subscribers may be told another one.
pub(crate) fn timestamp() -> Option<u64> {
    let mut timestamp = 0;
    // SAFETY: the subscriber is ours; a place to write to.
    let number = unsafe { (calls()?.now)(subscriber::current(), &mut timestamp) };
    (result(number) == CUptiResult::CUPTI_SUCCESS).then_some(timestamp)
}

/// The calls, if CUPTI has them. It is loaded.
fn calls() -> Option<&'static ShortCalls> {
    static CALLS: OnceLock<Option<ShortCalls>> = OnceLock::new();
    // SAFETY: the types are those of CUPTI's header, and the library stays loaded.
    let find = || unsafe {
        let library = sys::culib();
        Some(ShortCalls {
            set: *library.get(b"cuptiActivitySetAttribute_v2").ok()?,
            register: *library.get(b"cuptiActivityRegisterCallbacks_v2").ok()?,
            enable: *library.get(b"cuptiActivityEnable_v2").ok()?,
            disable: *library.get(b"cuptiActivityDisable_v2").ok()?,
            next: *library.get(b"cuptiActivityGetNextRecord_v2").ok()?,
            dropped: *library.get(b"cuptiActivityGetNumDroppedRecords_v2").ok()?,
            now: *library.get(b"cuptiGetTimestamp_v2").ok()?,
        })
    };
    CALLS.get_or_init(find).as_ref()
}
