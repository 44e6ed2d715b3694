//! Calls that keep the host from launching: those that wait for the device, and those that take its memory or give it back.
//! They tell why a device is idle, and are few.
#![allow(unsafe_code)]

use cudarc::cupti::sys::CUpti_CallbackData;
use stepscope_traces::{Correlation, Nanos, Span, SpanKind, now};

use crate::{
    blocking_call::BlockingCall,
    context::Context,
    launch_notes::{self, CallNote},
    shared::Shared,
    thread_state,
};

/// What is over sooner has not kept anybody from launching.
const SHORTEST: Nanos = Nanos(5_000);

/// A call that blocks begins: when it did is kept in its own data.
///
/// # Safety
///
/// The data is what CUPTI says of the beginning of this call.
pub(crate) unsafe fn begun(data: &CUpti_CallbackData) {
    // SAFETY: there is room for a number there until the call is over.
    if let Some(kept) = unsafe { data.correlationData.as_mut() } {
        *kept = now().0.cast_unsigned();
    }
}

/// A call ends; if it blocked for long, a note of it is left.
///
/// # Safety
///
/// The data is what CUPTI says of the end of this call.
pub(crate) unsafe fn ended(call: BlockingCall, data: &CUpti_CallbackData) {
    // SAFETY: it was written when the call began, if that was seen; else it is zero.
    let Some(began) = (unsafe { data.correlationData.as_ref() }).filter(|began| **began != 0) else { return };
    let (start, end) = (Nanos(began.cast_signed()), now());
    if end - start < SHORTEST {
        return;
    }
    if let Some(launched) = thread_state::calling() {
        let (recorder, context) = (launched.recorder, launched.context);
        launch_notes::leave_call(CallNote { recorder, context, call, correlation: data.correlationId, start, end });
    }
}

/// A call in a recording, by a number for its thread there.
pub(crate) fn span(note: &CallNote, listener: &Shared) -> Span {
    let CallNote { context, call, correlation, start, end, .. } = note;
    let Context { step, phase, .. } = *context;
    let name = listener.names().name(call.name());
    let span = Span::new(SpanKind::Launch, name, *start, *end - *start);
    Span { step, phase, correlation: Some(Correlation(u64::from(*correlation))), ..span }
}
