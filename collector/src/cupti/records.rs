//! The records CUPTI writes, by the part of each that is the same from CUPTI 12.0 to 13.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char},
    mem::offset_of,
};

use cudarc::cupti::sys;

use super::{
    calls::{Call, CallKind},
    memory::MemoryChange,
    repeated::LaunchShape,
    streams::CuptiStream,
};

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Kernel {
        work: Work,
        name: &'a CStr,
        shape: LaunchShape,
        /// What is set aside for the stacks of kernels.
        local_memory: u64,
    },
    Copy {
        work: Work,
        bytes: u64,
        direction: u8,
    },
    Set {
        work: Work,
        bytes: u64,
    },
    /// A graph that ran as a whole.
    Graph {
        work: Work,
        number: u32,
    },
    Memory(MemoryChange),
    Call(Call),
    /// Of a kind that is not asked for.
    Other,
}

/// Something that ran on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) place: CuptiStream,
    pub(crate) correlation: u32,
}

/// Where the next record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many bytes from the beginning of the buffer.
    At(usize),
    /// There are no more.
    End,
    /// What follows cannot be read.
    Broken,
}

/// Reads a buffer. Where the record after the one at an offset is, `next` says: the length of records differs between
/// versions. `each` gets `None` for what cannot be read.
///
/// # Safety
///
/// The bytes are records of CUPTI, which is still there, or made like them: the names they point to are there.
pub(crate) unsafe fn read(
    bytes: &[u8],
    mut next: impl FnMut(Option<usize>) -> Next,
    mut each: impl FnMut(Option<Record<'_>>),
) {
    let mut offset = None;
    loop {
        match next(offset) {
            Next::At(at) => {
                // SAFETY: as the caller promises.
                each(unsafe { read_one(bytes, at) });
                offset = Some(at);
            }
            Next::End => return,
            Next::Broken => return each(None),
        }
    }
}

/// # Safety
///
/// As for [`read`].
unsafe fn read_one(bytes: &[u8], at: usize) -> Option<Record<'_>> {
    use sys::CUpti_ActivityKind as Kind;
    const KERNEL: u32 = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32;
    const COPY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMCPY as u32;
    const PEER_COPY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMCPY2 as u32;
    const SET: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMSET as u32;
    const GRAPH: u32 = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE as u32;
    const MEMORY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMORY2 as u32;
    const POOL: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMORY_POOL as u32;
    const DRIVER_CALL: u32 = Kind::CUPTI_ACTIVITY_KIND_DRIVER as u32;
    const RUNTIME_CALL: u32 = Kind::CUPTI_ACTIVITY_KIND_RUNTIME as u32;

    let bytes = bytes.get(at..)?;
    // SAFETY: these types have a value for all bits, and whatever the kind says the record is of that type.
    unsafe {
        Some(match prefix::<u32>(bytes)? {
            KERNEL => {
                let kernel: Kernel = prefix(bytes)?;
                let name = if kernel.name.is_null() { c"(unnamed)" } else { CStr::from_ptr(kernel.name) };
                let work = work(&kernel.when, kernel.place, kernel.correlation);
                Record::Kernel { work, name, shape: LaunchShape(kernel.shape), local_memory: kernel.local_memory }
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
            MEMORY => prefix::<Memory>(bytes)?.change().map_or(Record::Other, Record::Memory),
            POOL => prefix::<MemoryPool>(bytes)?.change().map_or(Record::Other, Record::Memory),
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

const LOCAL_POOL: u32 = sys::CUpti_ActivityMemoryPoolType::CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL as u32;

impl Memory {
    /// What happened, if it did to memory of the device.
    fn change(&self) -> Option<MemoryChange> {
        use sys::{CUpti_ActivityMemoryKind as Kind, CUpti_ActivityMemoryOperationType as Operation};
        const ON_HOST: [u32; 3] = [
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN as u32,
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE as u32,
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_PINNED as u32,
        ];
        const ALLOCATED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION as u32;
        const RELEASED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE as u32;
        if ON_HOST.contains(&self.memory_kind) {
            return None;
        }
        let allocated = match self.operation {
            ALLOCATED => true,
            RELEASED => false,
            _ => return None,
        };
        let [_device, context, stream] = self.place;
        Some(MemoryChange {
            time: self.time,
            correlation: self.correlation,
            place: Some(CuptiStream { context, stream }),
            block: Some((allocated, self.address, self.bytes)),
            pool: (self.pool_type == LOCAL_POOL).then_some((self.pool_address, self.pool_size)),
        })
    }
}

impl MemoryPool {
    fn change(&self) -> Option<MemoryChange> {
        use sys::CUpti_ActivityMemoryPoolOperationType as Operation;
        const DESTROYED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED as u32;
        let size = if self.operation == DESTROYED { 0 } else { self.size };
        (self.pool_type == LOCAL_POOL).then_some(MemoryChange {
            time: self.time,
            correlation: self.correlation,
            place: None,
            block: None,
            pool: Some((self.address, size)),
        })
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes records as CUPTI does, each as long as that version makes it.
    #[derive(Default)]
    pub(crate) struct Page {
        pub(crate) bytes: Vec<u8>,
        pub(crate) offsets: Vec<usize>,
    }

    /// What is set aside for kernels.
    pub(crate) const LOCAL_MEMORY: u64 = 132 << 20;

    /// The lengths of a kernel, a copy, a peer copy, a fill and a memory record.
    pub(crate) const VERSION_12: [usize; 5] = [208, 88, 96, 88, 120];
    pub(crate) const VERSION_13: [usize; 5] = [248, 112, 96, 104, 128];

    impl Page {
        fn push(&mut self, length: usize, fields: &[(usize, &[u8])]) {
            let at = self.bytes.len();
            self.offsets.push(at);
            // What is not read is no zero.
            self.bytes.resize(at + length, 0xa5);
            for (offset, field) in fields {
                self.bytes[at + offset..at + offset + field.len()].copy_from_slice(field);
            }
        }

        pub(crate) fn kernel(&mut self, lengths: [usize; 5], work: Work, name: &'static CStr) {
            let (place, name) = (place(work), (name.as_ptr() as usize).to_le_bytes());
            let (start, end) = (work.start.to_le_bytes(), work.end.to_le_bytes());
            let correlation = work.correlation.to_le_bytes();
            let fields: [(usize, &[u8]); 7] = [
                (0, &10_u32.to_le_bytes()),
                (16, &start),
                (24, &end),
                (40, &place),
                (92, &correlation),
                (104, &name),
                (192, &LOCAL_MEMORY.to_le_bytes()),
            ];
            self.push(lengths[0], &fields);
        }

        pub(crate) fn copy(&mut self, lengths: [usize; 5], work: Work, bytes: u64, direction: u8) {
            self.transfer((1, lengths[1], 44), work, bytes, direction);
        }

        pub(crate) fn peer_copy(&mut self, lengths: [usize; 5], work: Work, bytes: u64) {
            self.transfer((22, lengths[2], 60), work, bytes, 10);
        }

        pub(crate) fn set(&mut self, lengths: [usize; 5], work: Work, bytes: u64) {
            self.transfer((2, lengths[3], 44), work, bytes, 0);
        }

        fn transfer(
            &mut self,
            (kind, length, correlation_at): (u32, usize, usize),
            work: Work,
            bytes: u64,
            direction: u8,
        ) {
            let place = place(work);
            let (start, end) = (work.start.to_le_bytes(), work.end.to_le_bytes());
            let correlation = work.correlation.to_le_bytes();
            let fields: [(usize, &[u8]); 7] = [
                (0, &kind.to_le_bytes()),
                (4, &[direction]),
                (8, &bytes.to_le_bytes()),
                (16, &start),
                (24, &end),
                (32, &place),
                (correlation_at, &correlation),
            ];
            self.push(length, &fields);
        }

        pub(crate) fn memory(&mut self, lengths: [usize; 5], operation: u32, kind: u32, pool: Option<(u64, u64)>) {
            let (pool_address, pool_size) = pool.unwrap_or_default();
            let fields: [(usize, &[u8]); 11] = [
                (0, &49_u32.to_le_bytes()),
                (4, &operation.to_le_bytes()),
                (8, &kind.to_le_bytes()),
                (12, &77_u32.to_le_bytes()),
                (16, &0xa000_u64.to_le_bytes()),
                (24, &512_u64.to_le_bytes()),
                (32, &1000_u64.to_le_bytes()),
                (52, &place(WORK)),
                (80, &u32::from(pool.is_some()).to_le_bytes()),
                (88, &pool_address.to_le_bytes()),
                (104, &pool_size.to_le_bytes()),
            ];
            self.push(lengths[4], &fields);
        }

        pub(crate) fn unknown(&mut self, length: usize) {
            self.push(length, &[(0, &9999_u32.to_le_bytes())]);
        }

        /// Where the record after one is.
        pub(crate) fn next(&self) -> impl FnMut(Option<usize>) -> Next {
            let offsets = self.offsets.clone();
            move |last| {
                let index = last.map_or(0, |last| offsets.iter().position(|offset| *offset == last).unwrap() + 1);
                offsets.get(index).map_or(Next::End, |offset| Next::At(*offset))
            }
        }
    }

    fn place(work: Work) -> [u8; 12] {
        bytemuck::cast([0, work.place.context, work.place.stream])
    }

    pub(crate) const WORK: Work =
        Work { start: 1000, end: 1250, place: CuptiStream { context: 1, stream: 13 }, correlation: 77 };

    #[test]
    fn records_of_both_versions_are_read_alike() {
        for lengths in [VERSION_12, VERSION_13] {
            let mut page = Page::default();
            page.kernel(lengths, WORK, c"matmul");
            page.unknown(24);
            page.copy(lengths, WORK, 4096, 1);
            page.peer_copy(lengths, WORK, 8192);
            page.set(lengths, WORK, 64);
            page.memory(lengths, 1, 3, None);
            page.memory(lengths, 2, 3, Some((0xf000, 1 << 20)));
            page.memory(lengths, 1, 2, None);
            let mut expected = [
                Record::Kernel {
                    work: WORK,
                    name: c"matmul",
                    shape: LaunchShape([0xa5a5_a5a5; 8]),
                    local_memory: LOCAL_MEMORY,
                },
                Record::Other,
                Record::Copy { work: WORK, bytes: 4096, direction: 1 },
                Record::Copy { work: WORK, bytes: 8192, direction: 10 },
                Record::Set { work: WORK, bytes: 64 },
                Record::Memory(MemoryChange {
                    time: 1000,
                    correlation: 77,
                    place: Some(WORK.place),
                    block: Some((true, 0xa000, 512)),
                    pool: None,
                }),
                Record::Memory(MemoryChange {
                    time: 1000,
                    correlation: 77,
                    place: Some(WORK.place),
                    block: Some((false, 0xa000, 512)),
                    pool: Some((0xf000, 1 << 20)),
                }),
                Record::Other,
            ]
            .into_iter();
            // SAFETY: the names are static.
            unsafe { read(&page.bytes, page.next(), |record| assert_eq!(record, expected.next())) };
            assert!(expected.next().is_none());
        }
    }

    #[test]
    fn what_does_not_fit_in_the_buffer_is_not_read() {
        let mut page = Page::default();
        page.kernel(VERSION_12, WORK, c"matmul");
        for length in 0..200 {
            // SAFETY: the name is static.
            assert!(unsafe { read_one(&page.bytes[..length], 0) }.is_none(), "{length}");
        }
        // SAFETY: the name is static, and outlives the page.
        assert!(unsafe { read_one(&page.bytes[..200], 0) }.is_some());
        // SAFETY: nothing is read so far behind the end of the page.
        assert!(unsafe { read_one(&page.bytes, usize::MAX) }.is_none());
    }
}
