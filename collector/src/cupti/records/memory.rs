//! What records say of memory, whichever form they have.

use cudarc::cupti::sys;

use super::{
    super::{memory::MemoryChange, streams::CuptiStream},
    Record,
};

const LOCAL_POOL: u32 = sys::CUpti_ActivityMemoryPoolType::CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL as u32;

/// A block that is handed out or comes back. Kinds, operations and types are CUPTI's numbers.
pub(super) struct BlockChange {
    pub(super) operation: u32,
    pub(super) memory_kind: u32,
    pub(super) time: u64,
    pub(super) correlation: u32,
    pub(super) place: CuptiStream,
    /// Its address and its size.
    pub(super) block: (u64, u64),
    pub(super) pool_type: u32,
    /// The address of its pool, and the size the pool has after this.
    pub(super) pool: (u64, u64),
}

/// A pool that comes, changes or goes.
pub(super) struct PoolChange {
    pub(super) operation: u32,
    pub(super) pool_type: u32,
    pub(super) time: u64,
    pub(super) correlation: u32,
    /// Its address, and its size after this.
    pub(super) pool: (u64, u64),
}

impl BlockChange {
    /// What happened, if it did to memory of the device.
    pub(super) fn record(self) -> Record<'static> {
        use sys::{CUpti_ActivityMemoryKind as Kind, CUpti_ActivityMemoryOperationType as Operation};
        const ON_HOST: [u32; 3] = [
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN as u32,
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE as u32,
            Kind::CUPTI_ACTIVITY_MEMORY_KIND_PINNED as u32,
        ];
        const ALLOCATED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION as u32;
        const RELEASED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE as u32;
        if ON_HOST.contains(&self.memory_kind) {
            return Record::Other;
        }
        let allocated = match self.operation {
            ALLOCATED => true,
            RELEASED => false,
            _ => return Record::Other,
        };
        let (address, bytes) = self.block;
        Record::Memory(MemoryChange {
            time: self.time,
            correlation: self.correlation,
            place: Some(self.place),
            block: Some((allocated, address, bytes)),
            pool: Some(self.pool).filter(|_| self.pool_type == LOCAL_POOL),
        })
    }
}

impl PoolChange {
    /// What happened, if the pool is one of this process.
    pub(super) fn record(self) -> Record<'static> {
        use sys::CUpti_ActivityMemoryPoolOperationType as Operation;
        const DESTROYED: u32 = Operation::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED as u32;
        if self.pool_type != LOCAL_POOL {
            return Record::Other;
        }
        let (address, size) = self.pool;
        let size = if self.operation == DESTROYED { 0 } else { size };
        let PoolChange { time, correlation, .. } = self;
        Record::Memory(MemoryChange { time, correlation, place: None, block: None, pool: Some((address, size)) })
    }
}
