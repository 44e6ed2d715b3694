//! Records with all that CUPTI has, by the part of each that is the same from CUPTI 12.0 to 13.
#![allow(unsafe_code)]

use std::{ffi::c_char, mem::offset_of};

use cudarc::cupti::sys;

use super::{
    super::{
        calls::{Call, CallKind},
        record_kind::{COPY, DRIVER_CALL, GRAPH, KERNEL, MEMORY, PEER_COPY, POOL, RUNTIME_CALL, SET},
        repeated::LaunchShape,
        streams::CuptiStream,
    },
    Record, Work, kernel_name,
    memory::{BlockChange, PoolChange},
};

/// # Safety
///
/// As for [`read`](super::read).
pub(super) unsafe fn record(bytes: &[u8]) -> Option<Record<'_>> {
    // SAFETY: these types have a value for all bits, and whatever the kind says the record is of that type.
    unsafe {
        Some(match prefix::<u32>(bytes)? {
            KERNEL => {
                let kernel: Kernel = prefix(bytes)?;
                let work = work(&kernel.when, kernel.place, kernel.correlation);
                let (shape, name) = (LaunchShape(kernel.shape), kernel_name(kernel.name));
                Record::Kernel { work, name, shape, local_memory: kernel.local_memory }
            }
            COPY => {
                let copy: Copy = prefix(bytes)?;
                let work = work(&copy.when, copy.place, copy.correlation);
                Record::Copy { work, bytes: copy.bytes, direction: copy.direction }
            }
            PEER_COPY => {
                let copy: PeerCopy = prefix(bytes)?;
                let work = work(&copy.when, copy.place, copy.correlation);
                Record::Copy { work, bytes: copy.bytes, direction: copy.direction }
            }
            SET => {
                let set: Set = prefix(bytes)?;
                Record::Set { work: work(&set.when, set.place, set.correlation), bytes: set.bytes }
            }
            GRAPH => {
                let Graph { when, device, number, place: [context, stream], correlation, .. } = prefix(bytes)?;
                Record::Graph { work: work(&when, [device, context, stream], correlation), number }
            }
            MEMORY => {
                let memory: Memory = prefix(bytes)?;
                let [_device, context, stream] = memory.place;
                let block = BlockChange {
                    operation: memory.operation,
                    memory_kind: memory.memory_kind,
                    time: memory.time,
                    correlation: memory.correlation,
                    place: CuptiStream { context, stream },
                    block: (memory.address, memory.bytes),
                    pool_type: memory.pool_type,
                    pool: (memory.pool_address, memory.pool_size),
                };
                block.record()
            }
            POOL => {
                let MemoryPool { operation, pool_type, correlation, address, size, time, .. } = prefix(bytes)?;
                PoolChange { operation, pool_type, time, correlation, pool: (address, size) }.record()
            }
            kind @ (DRIVER_CALL | RUNTIME_CALL) => {
                let kind = if kind == DRIVER_CALL { CallKind::Driver } else { CallKind::Runtime };
                let ApiCall { number, when: [start, _], thread, correlation, .. } = prefix(bytes)?;
                Record::Call(Call { kind, number, start, thread, correlation })
            }
            _ => Record::Other,
        })
    }
}

/// # Safety
///
/// The type has a value for all bits.
unsafe fn prefix<T: std::marker::Copy>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: there are as many bytes; whatever they are is a value, as the caller promises.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn work(when: &[u64; 2], place: [u32; 3], correlation: u32) -> Work {
    let [_device, context, stream] = place;
    Work { start: when[0], end: when[1], place: CuptiStream { context, stream }, correlation }
}

/// The beginning of `CUpti_ActivityKernel9` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct Kernel {
    kind: u32,
    _configuration: [u8; 12],
    when: [u64; 2],
    _completed: u64,
    place: [u32; 3],
    /// Of the grid, of a block, and the shared memory of one.
    shape: [u32; 8],
    _local: [u32; 2],
    correlation: u32,
    _grid: i64,
    name: *const c_char,
    _launch: [u64; 10],
    local_memory: u64,
}

/// The beginning of `CUpti_ActivityAPI`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ApiCall {
    kind: u32,
    number: u32,
    when: [u64; 2],
    _process: u32,
    thread: u32,
    correlation: u32,
}

/// The beginning of `CUpti_ActivityMemcpy5` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy {
    kind: u32,
    direction: u8,
    _memory_kinds: [u8; 3],
    bytes: u64,
    when: [u64; 2],
    place: [u32; 3],
    correlation: u32,
}

/// The beginning of `CUpti_ActivityMemcpyPtoP4`.
#[derive(Clone, Copy)]
#[repr(C)]
struct PeerCopy {
    kind: u32,
    direction: u8,
    _memory_kinds: [u8; 3],
    bytes: u64,
    when: [u64; 2],
    place: [u32; 3],
    _ends: [u32; 4],
    correlation: u32,
}

/// The beginning of `CUpti_ActivityMemset4` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct Set {
    kind: u32,
    _value: u32,
    bytes: u64,
    when: [u64; 2],
    place: [u32; 3],
    correlation: u32,
}

/// The beginning of `CUpti_ActivityGraphTrace` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct Graph {
    kind: u32,
    correlation: u32,
    when: [u64; 2],
    device: u32,
    number: u32,
    place: [u32; 2],
}

/// The beginning of `CUpti_ActivityMemory3` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    kind: u32,
    operation: u32,
    memory_kind: u32,
    correlation: u32,
    address: u64,
    bytes: u64,
    time: u64,
    _caller: u64,
    _process: u32,
    place: [u32; 3],
    _name: *const c_char,
    _is_async: [u32; 2],
    pool_type: u32,
    _padding: u32,
    pool_address: u64,
    _release_threshold: u64,
    pool_size: u64,
}

/// The beginning of `CUpti_ActivityMemoryPool2` and later.
#[derive(Clone, Copy)]
#[repr(C)]
struct MemoryPool {
    kind: u32,
    operation: u32,
    pool_type: u32,
    correlation: u32,
    _process: u32,
    _device: u32,
    _bytes_to_keep: u64,
    address: u64,
    size: u64,
    _release_threshold: u64,
    time: u64,
}

/// Does not compile where CUPTI has a field elsewhere.
macro_rules! same_places {
    ($($ours:ident = $theirs:ident { $($field:ident = $name:ident $(. $part:ident)?),* })*) => {
        $($(const _: () =
            assert!(offset_of!($ours, $field) == offset_of!(sys::$theirs, $name $(. $part)?));)*)*
    };
}

same_places! {
    Kernel = CUpti_ActivityKernel9 {
        kind = kind, when = start, place = deviceId, shape = gridX, correlation = correlationId, name = name,
        local_memory = localMemoryTotal_v2
    }
    Kernel = CUpti_ActivityKernel10 {
        kind = kind, when = start, place = deviceId, shape = gridX, correlation = correlationId, name = name,
        local_memory = localMemoryTotal_v2
    }
    Copy = CUpti_ActivityMemcpy5 {
        direction = copyKind, bytes = bytes, when = start, place = deviceId, correlation = correlationId
    }
    Copy = CUpti_ActivityMemcpy6 {
        direction = copyKind, bytes = bytes, when = start, place = deviceId, correlation = correlationId
    }
    PeerCopy = CUpti_ActivityMemcpyPtoP4 {
        direction = copyKind, bytes = bytes, when = start, place = deviceId, correlation = correlationId
    }
    Set = CUpti_ActivityMemset4 {
        bytes = bytes, when = start, place = deviceId, correlation = correlationId
    }
    Graph = CUpti_ActivityGraphTrace {
        correlation = correlationId, when = start, device = deviceId, number = graphId, place = contextId
    }
    Graph = CUpti_ActivityGraphTrace2 {
        correlation = correlationId, when = start, device = deviceId, number = graphId, place = contextId
    }
    Memory = CUpti_ActivityMemory3 {
        operation = memoryOperationType, memory_kind = memoryKind, correlation = correlationId, address = address,
        bytes = bytes, time = timestamp, place = deviceId, pool_type = memoryPoolConfig.memoryPoolType,
        pool_address = memoryPoolConfig.address, pool_size = memoryPoolConfig.pool
    }
    Memory = CUpti_ActivityMemory4 {
        operation = memoryOperationType, memory_kind = memoryKind, correlation = correlationId, address = address,
        bytes = bytes, time = timestamp, place = deviceId, pool_type = memoryPoolConfig.memoryPoolType,
        pool_address = memoryPoolConfig.address, pool_size = memoryPoolConfig.pool
    }
    MemoryPool = CUpti_ActivityMemoryPool2 {
        operation = memoryPoolOperationType, pool_type = memoryPoolType, correlation = correlationId,
        address = address, size = size, time = timestamp
    }
    MemoryPool = CUpti_ActivityMemoryPool3 {
        operation = memoryPoolOperationType, pool_type = memoryPoolType, correlation = correlationId,
        address = address, size = size, time = timestamp
    }
}
