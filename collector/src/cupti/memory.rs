//! Memory of the device as the driver hands it out, for programs that do not say themselves.

use std::collections::HashMap;

use stepscope_traces::{MemoryEvent, MemoryOperation, Nanos, Pool};

use super::streams::CuptiStream;
use crate::context::Context;

/// What happened to memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryChange {
    pub(crate) time: u64,
    pub(crate) correlation: u32,
    /// The stream in whose order it happened, or any stream of its context.
    pub(crate) place: Option<CuptiStream>,
    /// Whether a block was handed out, or came back; its address and its size.
    pub(crate) block: Option<(bool, u64, u64)>,
    /// The address of its pool, and the size the pool has after this.
    pub(crate) pool: Option<(u64, u64)>,
}

/// The pools of stream-ordered memory, and how large each is.
#[derive(Default)]
pub(crate) struct Pools(HashMap<u64, (Pool, u64)>);

impl Pools {
    /// What a change is in a recording. A pool that takes more from the device or gives some back is let go and taken anew.
    pub(crate) fn events(&mut self, change: &MemoryChange, time_ns: Nanos, context: &Context) -> Vec<MemoryEvent> {
        let &Context { step, phase, layer, .. } = context;
        let event = |op, address, bytes, pool| MemoryEvent {
            time_ns,
            op,
            address,
            bytes,
            category: None,
            step,
            phase,
            layer,
            pool,
            site: None,
        };
        let mut events = Vec::new();
        let pool = change.pool.map(|(address, size)| {
            let number = Pool(self.0.len() as u32);
            let (pool, known_size) = self.0.entry(address).or_insert((number, 0));
            if *known_size != size {
                if *known_size > 0 {
                    events.push(event(MemoryOperation::Release, address, None, Some(*pool)));
                }
                if size > 0 {
                    events.push(event(MemoryOperation::Reserve, address, Some(size), Some(*pool)));
                }
                *known_size = size;
            }
            *pool
        });
        events.extend(change.block.map(|(allocated, address, bytes)| match allocated {
            true => event(MemoryOperation::Alloc, address, Some(bytes), pool),
            false => event(MemoryOperation::Free, address, None, pool),
        }));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_as_large_as_its_last_change_says() {
        let mut pools = Pools::default();
        let mut operations = |block, pool| {
            let change = MemoryChange { time: 5, correlation: 0, place: None, block, pool };
            let events = pools.events(&change, Nanos(5), &Context::default());
            events.iter().map(|event| (event.op, event.address, event.bytes, event.pool)).collect::<Vec<_>>()
        };
        use MemoryOperation::{Alloc, Free, Release, Reserve};
        let pool = Some(Pool(0));
        assert_eq!(operations(Some((true, 1, 10)), None), [(Alloc, 1, Some(10), None)]);
        assert_eq!(operations(None, Some((9, 0))), [], "a pool begins empty");
        let grown = operations(Some((true, 2, 20)), Some((9, 100)));
        assert_eq!(grown, [(Reserve, 9, Some(100), pool), (Alloc, 2, Some(20), pool)]);
        assert_eq!(operations(Some((false, 2, 20)), Some((9, 100))), [(Free, 2, None, pool)]);
        let trimmed = operations(None, Some((9, 50)));
        assert_eq!(trimmed, [(Release, 9, None, pool), (Reserve, 9, Some(50), pool)]);
        assert_eq!(operations(None, Some((9, 0))), [(Release, 9, None, pool)]);
    }
}
