//! Our subscription to CUPTI, of which a process has one, and its end.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
};

use cudarc::cupti::sys::{self, CUpti_Subscriber_st, CUpti_driver_api_trace_cbid};

/// The call at whose end CUPTI is let go of. It does nothing, and we make it ourselves.
pub(crate) const LAST_CALL: u32 = CUpti_driver_api_trace_cbid::CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion as u32;

static SUBSCRIBER: AtomicPtr<CUpti_Subscriber_st> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// Set when the next [`LAST_CALL`] of this thread is the last call.
    pub(crate) static DETACHING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a subscription that was made.
pub(crate) fn keep(subscriber: *mut CUpti_Subscriber_st) {
    SUBSCRIBER.store(subscriber, SeqCst);
}

/// The subscription there is.
pub(crate) fn current() -> *mut CUpti_Subscriber_st {
    SUBSCRIBER.load(SeqCst)
}

/// Whether we have one.
pub(crate) fn is_there() -> bool {
    !current().is_null()
}

/// Ends the subscription, if there is one, so that another one can be made. Threads may be in calls that it watches.
pub(crate) fn unsubscribe() {
    let subscriber = SUBSCRIBER.swap(ptr::null_mut(), SeqCst);
    if !subscriber.is_null() {
        // SAFETY: it is ours, and nobody uses it after this.
        unsafe { sys::cuptiUnsubscribe(subscriber) };
    }
}

/// Lets go of CUPTI, here and now.
pub(crate) fn finalize() {
    unsubscribe();
    // SAFETY: it is there; what is asked of it after this begins anew.
    unsafe { sys::cuptiFinalize() };
}
