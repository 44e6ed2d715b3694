//! What NCCL says of events, read from the descriptors of each version.

use std::ffi::{CStr, c_char, c_int, c_void};

use stepscope_traces::SpanKind;

use super::interface::{
    CollectiveCall, CollectiveV2, CollectiveV3, CollectiveV4, Descriptor, MessageCall, MessageV3, MessageV4,
};

/// The events that are asked for, as bits. Calls come with the collectives that they are about.
pub(super) const WANTED: c_int = (COLLECTIVE | MESSAGE) as c_int;

const PLAN: u64 = 1;
const COLLECTIVE: u64 = 1 << 1;
const MESSAGE: u64 = 1 << 2;
const GROUP_CALL: u64 = 1 << 8;
const COLLECTIVE_CALL: u64 = 1 << 9;
const MESSAGE_CALL: u64 = 1 << 10;

/// What NCCL says of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NcclEvent {
    /// Calls begin that belong together.
    GroupCall,
    /// One of them, which has no number.
    CollectiveCall(Asked),
    /// One of them, and whether it goes into a graph.
    MessageCall { captured: bool },
    /// What was launched as one kernel follows.
    Plan,
    /// A collective of it, with its number among those of its function.
    Collective { asked: Asked, sequence: u64 },
    /// A send or a receive of it.
    Message { asked: Asked, own: c_int, peer: c_int },
    /// Anything else.
    Other,
}

/// What was asked of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) operation: SpanKind,
    /// What this rank gives to it, or gets of it.
    pub(super) part_bytes: Option<u64>,
    /// What all ranks have together, if it says so.
    pub(super) whole_bytes: Option<u64>,
    /// The communicator's hash, where events say it.
    pub(super) hash: Option<u64>,
}

impl Asked {
    /// # Safety
    ///
    /// The texts are null or end in a zero.
    unsafe fn new(function: *const c_char, count: usize, element_type: *const c_char) -> Asked {
        // SAFETY: as the caller promises.
        let (operation, element) = unsafe { (operation(text(function)), element_bytes(text(element_type))) };
        let part_bytes = element.and_then(|bytes| bytes.checked_mul(count as u64));
        Asked { operation, part_bytes, whole_bytes: None, hash: None }
    }
}

/// A version of the interface: how to read its descriptors.
pub(super) trait Version {
    /// # Safety
    ///
    /// It is a descriptor of that version.
    unsafe fn read(descriptor: *const c_void) -> NcclEvent;
}

pub(super) struct V2;
pub(super) struct V3;
pub(super) struct V4;
/// Version 6 differs in what is not read here.
pub(super) struct V5;

impl Version for V2 {
    unsafe fn read(descriptor: *const c_void) -> NcclEvent {
        // SAFETY: as the caller promises; the kind says which descriptor it is.
        unsafe {
            let said = V3::read(descriptor);
            let NcclEvent::Collective { asked, sequence } = said else { return said };
            let whole = (*descriptor.cast::<Descriptor<u8, CollectiveV2>>()).body.traffic_bytes as u64;
            let is_whole = matches!(asked.operation, SpanKind::AllGather | SpanKind::ReduceScatter);
            // A newer NCCL that speaks this version for us leaves it empty.
            let whole_bytes = Some(whole).filter(|whole| is_whole && *whole != 0);
            NcclEvent::Collective { asked: Asked { whole_bytes, ..asked }, sequence }
        }
    }
}

impl Version for V3 {
    unsafe fn read(descriptor: *const c_void) -> NcclEvent {
        // SAFETY: as the caller promises; the kind says which descriptor it is.
        unsafe {
            match u64::from(*descriptor.cast::<u8>()) {
                COLLECTIVE => {
                    let CollectiveV3 { hash, sequence, function, count, element_type, .. } =
                        (*descriptor.cast::<Descriptor<u8, CollectiveV3>>()).body;
                    let asked = Asked { hash: told(hash), ..Asked::new(function, count, element_type) };
                    NcclEvent::Collective { asked, sequence }
                }
                MESSAGE => {
                    let Descriptor { rank, body: MessageV3 { hash, message, .. }, .. } =
                        &*descriptor.cast::<Descriptor<u8, MessageV3>>();
                    message.read(*rank, told(*hash))
                }
                PLAN => NcclEvent::Plan,
                _ => NcclEvent::Other,
            }
        }
    }
}

impl Version for V4 {
    unsafe fn read(descriptor: *const c_void) -> NcclEvent {
        // SAFETY: as the caller promises.
        unsafe { read_from_4_on(descriptor, u64::from(*descriptor.cast::<u8>())) }
    }
}

impl Version for V5 {
    unsafe fn read(descriptor: *const c_void) -> NcclEvent {
        // SAFETY: as the caller promises; the kind says which descriptor it is.
        unsafe {
            match *descriptor.cast::<u64>() {
                GROUP_CALL => NcclEvent::GroupCall,
                COLLECTIVE_CALL => {
                    let CollectiveCall { function, count, element_type } =
                        (*descriptor.cast::<Descriptor<u64, CollectiveCall>>()).body;
                    NcclEvent::CollectiveCall(Asked::new(function, count, element_type))
                }
                MESSAGE_CALL => {
                    let call = &(*descriptor.cast::<Descriptor<u64, MessageCall>>()).body;
                    NcclEvent::MessageCall { captured: call.captured != 0 }
                }
                kind => read_from_4_on(descriptor, kind),
            }
        }
    }
}

/// # Safety
///
/// It is a descriptor of version 4 or a later one, of that kind.
unsafe fn read_from_4_on(descriptor: *const c_void, kind: u64) -> NcclEvent {
    // SAFETY: as the caller promises. What follows the kind, a byte or a word, is where it is for both.
    unsafe {
        match kind {
            COLLECTIVE => {
                let CollectiveV4 { sequence, function, count, element_type, .. } =
                    (*descriptor.cast::<Descriptor<u8, CollectiveV4>>()).body;
                NcclEvent::Collective { asked: Asked::new(function, count, element_type), sequence }
            }
            MESSAGE => {
                let Descriptor { rank, body, .. } = &*descriptor.cast::<Descriptor<u8, MessageV4>>();
                body.read(*rank, None)
            }
            PLAN => NcclEvent::Plan,
            _ => NcclEvent::Other,
        }
    }
}

impl MessageV4 {
    /// # Safety
    ///
    /// The texts are null or end in a zero.
    unsafe fn read(&self, own: c_int, hash: Option<u64>) -> NcclEvent {
        // SAFETY: as the caller promises.
        let asked = unsafe { Asked::new(self.function, self.count, self.element_type) };
        NcclEvent::Message { asked: Asked { hash, ..asked }, own, peer: self.peer }
    }
}

/// A hash. A newer NCCL that speaks an old version for us leaves it empty.
fn told(hash: u64) -> Option<u64> {
    Some(hash).filter(|hash| *hash != 0)
}

/// # Safety
///
/// It is null or ends in a zero, and stays.
unsafe fn text(text: *const c_char) -> &'static [u8] {
    // SAFETY: as the caller promises; NCCL's are constants.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

fn operation(function: &[u8]) -> SpanKind {
    match function {
        b"AllReduce" => SpanKind::AllReduce,
        b"AllGather" => SpanKind::AllGather,
        b"ReduceScatter" => SpanKind::ReduceScatter,
        b"Broadcast" => SpanKind::Broadcast,
        b"Reduce" => SpanKind::Reduce,
        b"AlltoAll" => SpanKind::AllToAll,
        b"Send" => SpanKind::Send,
        b"Recv" => SpanKind::Receive,
        _ => SpanKind::Communication,
    }
}

/// NCCL has no word for unsigned bytes.
fn element_bytes(element_type: &[u8]) -> Option<u64> {
    match element_type {
        b"ncclInt8" | b"ncclUint8" | b"ncclFloat8e4m3" | b"ncclFloat8e5m2" => Some(1),
        b"ncclFloat16" | b"ncclBfloat16" => Some(2),
        b"ncclInt32" | b"ncclUint32" | b"ncclFloat32" => Some(4),
        b"ncclInt64" | b"ncclUint64" | b"ncclFloat64" => Some(8),
        _ => None,
    }
}
