//! Places in streams: events of the driver, used again and again.
//!
//! To make and to destroy an event, the driver waits for threads that wait for the device; and the device may be waiting
//! for another rank, which waits for this one to go on. So in the long run none is made and none destroyed.

use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys::CUevent_flags};

use crate::lock::lock;

/// Unused events, to be used again.
pub(super) struct Marks {
    context: Arc<CudaContext>,
    unused: Arc<Mutex<Vec<CudaEvent>>>,
}

/// A place in a stream, as long as somebody wants to know of it.
pub(crate) struct Mark {
    event: Option<CudaEvent>,
    unused: Arc<Mutex<Vec<CudaEvent>>>,
}

impl Marks {
    pub(super) fn new(context: Arc<CudaContext>) -> Marks {
        Marks { context, unused: Arc::default() }
    }

    /// Marks the end of what a stream has been given so far.
    pub(super) fn make(&self, stream: &CudaStream) -> Result<Mark, DriverError> {
        let unused = lock(&self.unused).pop();
        let event = match unused {
            Some(event) => event,
            None => self.context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?,
        };
        event.record(stream)?;
        Ok(Mark { event: Some(event), unused: self.unused.clone() })
    }
}

impl Mark {
    /// Lets a stream go on only after this.
    pub(super) fn hold(&self, stream: &CudaStream) -> Result<(), DriverError> {
        self.event.as_ref().map_or(Ok(()), |event| stream.wait(event))
    }

    /// Whether the stream is past it.
    pub(crate) fn is_past(&self) -> Result<bool, DriverError> {
        self.event.as_ref().map_or(Ok(true), CudaEvent::try_is_complete)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        lock(&self.unused).extend(self.event.take());
    }
}
