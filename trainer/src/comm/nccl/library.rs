//! NCCL itself: one unsafe call behind each function here.
#![allow(unsafe_code, reason = "NCCL takes addresses")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use cudarc::{
    driver::sys::CUstream,
    nccl::{result, sys},
};

use super::call::{Call, Verb};
use crate::{backend::DType, comm::Reduction};

/// What one member of a group makes for all of it.
#[derive(Clone, Copy)]
pub(super) struct Id(sys::ncclUniqueId);

impl Id {
    /// A new one. The process that makes it has to be there until all have connected.
    pub(super) fn new() -> Result<Id, String> {
        result::get_uniqueid().map(Id).map_err(|error| describe(error.0, ptr::null_mut()))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.internal.iter().map(|byte| byte.cast_unsigned()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Id> {
        let internal = bytes.iter().map(|byte| byte.cast_signed()).collect::<Vec<c_char>>().try_into().ok()?;
        Some(Id(sys::ncclUniqueId { internal }))
    }
}

/// One rank's end of a group: a communicator, as NCCL says.
pub(super) struct Member(sys::ncclComm_t);

// SAFETY: NCCL lets any thread use a communicator, as long as it is one at a time; nothing here is shared.
unsafe impl Send for Member {}

impl Member {
    /// Connects to the other members: comes back when all of them are here. The calling thread must be in the context of
    /// its device.
    pub(super) fn connect(size: usize, id: Id, index: usize) -> Result<Member, String> {
        let mut member = ptr::null_mut();
        // SAFETY: the address is written to before this returns, and the rest is passed by value.
        let status = unsafe { sys::ncclCommInitRank(&raw mut member, size as c_int, id.0, index as c_int) };
        check(status, ptr::null_mut()).map(|()| Member(member))
    }

    /// Queues a call on a stream.
    ///
    /// # Safety
    /// The memory of the call is the device's, of the size that it says, and left alone until the stream has done it.
    pub(super) unsafe fn call(&self, call: &Call, stream: CUstream) -> Result<(), String> {
        let Call { verb, from, to, count, dtype } = *call;
        let (from, to, dtype) = (from as *const c_void, to as *mut c_void, data_type(dtype));
        let (member, stream) = (self.0, stream.cast());
        // SAFETY: the communicator is alive, since this has it; the memory is the caller's promise.
        let status = unsafe {
            match verb {
                Verb::AllReduce(reduction) => {
                    sys::ncclAllReduce(from, to, count, dtype, operation(reduction), member, stream)
                }
                Verb::ReduceScatter => {
                    sys::ncclReduceScatter(from, to, count, dtype, operation(Reduction::Sum), member, stream)
                }
                Verb::AllGather => sys::ncclAllGather(from, to, count, dtype, member, stream),
                Verb::Broadcast { root } => sys::ncclBroadcast(from, to, count, dtype, root as c_int, member, stream),
                Verb::Send { to: peer } => sys::ncclSend(from, count, dtype, peer as c_int, member, stream),
                Verb::Receive { from: peer } => sys::ncclRecv(to, count, dtype, peer as c_int, member, stream),
            }
        };
        check(status, member)
    }

    /// Queues calls on a stream that are done as one.
    ///
    /// # Safety
    /// As [`Member::call`], of each.
    pub(super) unsafe fn call_together(&self, calls: &[Call], stream: CUstream) -> Result<(), String> {
        if let [call] = calls {
            // SAFETY: the caller's promise.
            return unsafe { self.call(call, stream) };
        }
        // SAFETY: a group is this thread's own, and ends before this returns.
        check(unsafe { sys::ncclGroupStart() }, self.0)?;
        // SAFETY: the caller's promise.
        let called = calls.iter().try_for_each(|call| unsafe { self.call(call, stream) });
        // SAFETY: this thread has begun a group, and ends it once.
        let ended = check(unsafe { sys::ncclGroupEnd() }, self.0);
        called.and(ended)
    }

    /// What went wrong while calls were done, if anything did.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut status = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive, and the address is written to before this returns.
        let asked = unsafe { sys::ncclCommGetAsyncError(self.0, &raw mut status) };
        check(asked, self.0).and_then(|()| check(status, self.0)).err()
    }

    /// Lets go of everything, whatever is queued.
    pub(super) fn abort(self) {
        // SAFETY: the communicator is alive, and nothing has it after this.
        let _ = unsafe { sys::ncclCommAbort(self.0) };
    }
}

/// Major, minor and patch of the library.
pub(super) fn version() -> Result<(i32, i32, i32), String> {
    let code = result::get_nccl_version().map_err(|error| describe(error.0, ptr::null_mut()))?;
    Ok((code / 10_000, code / 100 % 100, code % 100))
}

fn operation(reduction: Reduction) -> sys::ncclRedOp_t {
    match reduction {
        Reduction::Sum => sys::ncclRedOp_t::ncclSum,
        Reduction::Maximum => sys::ncclRedOp_t::ncclMax,
    }
}

fn data_type(dtype: DType) -> sys::ncclDataType_t {
    match dtype {
        DType::Bf16 => sys::ncclDataType_t::ncclBfloat16,
        DType::F32 => sys::ncclDataType_t::ncclFloat32,
        DType::F64 => sys::ncclDataType_t::ncclFloat64,
        DType::U32 => sys::ncclDataType_t::ncclUint32,
    }
}

fn check(status: sys::ncclResult_t, member: sys::ncclComm_t) -> Result<(), String> {
    match status {
        sys::ncclResult_t::ncclSuccess | sys::ncclResult_t::ncclInProgress => Ok(()),
        status => Err(describe(status, member)),
    }
}

/// What NCCL says of a status, and of the last that went wrong in this process.
fn describe(status: sys::ncclResult_t, member: sys::ncclComm_t) -> String {
    // SAFETY: both are texts of the library, which is never unloaded; the second takes any communicator, and none.
    let [general, particular] = unsafe {
        [sys::ncclGetErrorString(status), sys::ncclGetLastError(member)].map(|text| {
            let text = if text.is_null() { c"" } else { CStr::from_ptr(text) };
            text.to_string_lossy().trim().replace('\n', " ")
        })
    };
    if particular.is_empty() { format!("NCCL: {general}") } else { format!("NCCL: {general}; {particular}") }
}
