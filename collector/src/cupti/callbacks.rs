//! What CUPTI calls. None of it blocks or panics: it runs on the program's threads, in the middle of its calls.
#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use cudarc::{
    cupti::sys::{CUpti_ApiCallbackSite, CUpti_CallbackData, CUpti_CallbackDomain as Domain},
    driver::sys::CUcontext,
};

use super::{
    blocking_calls,
    buffers::{BUFFERS, Filled},
    driver_memory, latest_kernel, modules,
    record_form::{CompleteInfo, RecordForm, ShortLayouts},
    subscriber::{self, DETACHING, LAST_CALL},
    traced,
    watched_calls::{self, LaunchedWork, WatchedCall},
};
use crate::launch_notes;

/// Lends CUPTI a buffer; without one it drops records and counts them.
pub(crate) unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let lent = catch_unwind(|| BUFFERS.lend()).ok().flatten();
    let (start, length) = lent.map_or((ptr::null_mut(), 0), |lent| {
        let bytes = size_of_val(&*lent);
        (Box::into_raw(lent).cast::<u8>(), bytes)
    });
    // SAFETY: CUPTI gives three places to write to.
    unsafe {
        *buffer = start;
        *size = length;
        *most_records = 0;
    }
}

/// The same for a subscriber; what CUPTI adds says nothing yet.
pub(crate) unsafe extern "C" fn buffer_requested_by_subscriber(
    buffer: *mut *mut u8,
    size: *mut usize,
    most_records: *mut usize,
    _: *const c_void,
) {
    // SAFETY: as there.
    unsafe { buffer_requested(buffer, size, most_records) };
}

/// Takes a buffer back.
pub(crate) unsafe extern "C" fn buffer_completed(
    _: CUcontext,
    _: u32,
    buffer: *mut u8,
    size: usize,
    valid_size: usize,
) {
    // SAFETY: CUPTI gives a buffer back.
    unsafe { completed(buffer, size, valid_size, || RecordForm::Whole) };
}

/// Takes a buffer of short records back.
pub(crate) unsafe extern "C" fn short_records_completed(
    buffer: *mut u8,
    size: usize,
    valid_size: usize,
    told: *const CompleteInfo,
) {
    let form = || {
        // SAFETY: that is what CUPTI says of the buffer.
        let layouts = unsafe { told.as_ref().map(|told| ShortLayouts::told(told)) };
        RecordForm::Short(Box::new(layouts.unwrap_or_default()))
    };
    // SAFETY: CUPTI gives a buffer back.
    unsafe { completed(buffer, size, valid_size, form) };
}

/// # Safety
///
/// CUPTI gives the buffer back.
unsafe fn completed(buffer: *mut u8, size: usize, valid: usize, form: impl FnOnce() -> RecordForm) {
    if catch_unwind(|| BUFFERS.is_returned(buffer.addr())).ok() != Some(true) {
        return;
    }
    let words = size / size_of::<u64>();
    // SAFETY: it is one that was lent, as was just seen, of the size it was lent with, and CUPTI does not use it any more.
    let buffer = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), words)) };
    drop(catch_unwind(AssertUnwindSafe(|| BUFFERS.hand_over(Filled { buffer, valid, form: form() }))));
}

/// A call that launches something, takes memory or waits begins or ends, or a module comes or goes.
pub(crate) unsafe extern "C" fn called(_: *mut c_void, domain: Domain, call: u32, data: *const c_void) {
    if domain == Domain::CUPTI_CB_DOMAIN_RESOURCE {
        // SAFETY: that is what CUPTI says of this resource.
        drop(catch_unwind(|| unsafe { modules::changed(call, data) }));
        return;
    }
    // SAFETY: that is what calls of the driver come with; it is there until this returns.
    let Some(data) = (unsafe { data.cast::<CUpti_CallbackData>().as_ref() }) else { return };
    let begins = data.callbackSite == CUpti_ApiCallbackSite::CUPTI_API_ENTER;
    if call == LAST_CALL {
        if !begins && DETACHING.try_with(|detaching| detaching.replace(false)) == Ok(true) {
            subscriber::finalize();
        }
    } else if let Some(watched) = watched_calls::numbered(call) {
        drop(catch_unwind(AssertUnwindSafe(|| if begins { begun(watched, data) } else { ended(watched, data) })));
    }
}

fn begun(call: &WatchedCall, data: &CUpti_CallbackData) {
    let number = data.correlationId;
    match call.launches {
        Some(LaunchedWork::OneKernel) => latest_kernel::launched(Some(number)),
        Some(LaunchedWork::Kernels) => latest_kernel::launched(None),
        Some(LaunchedWork::Transfer) | None => {}
    }
    if call.launches.is_some() || call.changes_memory && traced::memory_is_traced() {
        launch_notes::leave(number, matches!(call.launches, Some(LaunchedWork::OneKernel | LaunchedWork::Kernels)));
    }
    if call.blocks.is_some() {
        // SAFETY: that is what CUPTI says of the beginning of this call.
        unsafe { blocking_calls::begun(data) };
    }
}

fn ended(call: &WatchedCall, data: &CUpti_CallbackData) {
    if let Some(blocks) = call.blocks {
        // SAFETY: that is what CUPTI says of the end of this call.
        unsafe { blocking_calls::ended(blocks, data) };
    }
    if call.says_holder {
        // SAFETY: that is what CUPTI says of the end of this call.
        unsafe { driver_memory::ended(data) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_out_and_come_back() {
        let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 1);
        // SAFETY: as CUPTI would.
        unsafe {
            buffer_requested(&mut buffer, &mut size, &mut most);
            assert!(!buffer.is_null() && buffer.align_offset(8) == 0 && (size, most) == (1 << 20, 0));
            buffer_completed(std::ptr::null_mut(), 0, buffer, size, 48);
            // What another profiler lent is not ours to free, and what came back does not come back again.
            let mut foreign = [0_u64; 16];
            for not_ours in [foreign.as_mut_ptr().cast(), std::ptr::null_mut(), buffer] {
                buffer_completed(std::ptr::null_mut(), 0, not_ours, 128, 48);
            }
        }
        let filled = BUFFERS.take_filled().unwrap();
        assert_eq!((filled.buffer.as_ptr().cast(), filled.records().len()), (buffer.cast_const(), 48));
        assert!(BUFFERS.take_filled().is_none());
        BUFFERS.give_back(filled.buffer);
    }
}
