//! The memory that CUPTI writes records to: a bounded pool, used again and again.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Mutex,
};

use super::record_form::RecordForm;
use crate::lock::lock;

/// CUPTI hands over a buffer only when each record in it is complete, which in a busy job is when it is full: a small one
/// is seen soon, and a large one is asked for less often. This is some 5,000 kernels.
const BUFFER_WORDS: usize = (1 << 20) / size_of::<u64>();
/// All buffers together: 64 MiB.
const MOST_BUFFERS: usize = 64;

/// Memory for records, aligned as CUPTI wants it.
pub(crate) type Buffer = Box<[u64]>;

/// A buffer that CUPTI has handed over.
pub(crate) struct Filled {
    pub(crate) buffer: Buffer,
    /// How many bytes of it are records.
    pub(crate) valid: usize,
    /// What they have in them.
    pub(crate) form: RecordForm,
}

impl Filled {
    /// The bytes that are records.
    pub(crate) fn records(&self) -> &[u8] {
        let bytes = bytemuck::cast_slice(&self.buffer);
        bytes.get(..self.valid).unwrap_or(bytes)
    }
}

/// The pool of buffers.
pub(crate) struct Buffers(Mutex<Pool>);

struct Pool {
    free: Vec<Buffer>,
    filled: VecDeque<Filled>,
    /// Where those are that CUPTI has.
    lent: BTreeSet<usize>,
    /// Free, filled, or with CUPTI.
    existing: usize,
}

impl Pool {
    const fn new() -> Pool {
        Pool { free: Vec::new(), filled: VecDeque::new(), lent: BTreeSet::new(), existing: 0 }
    }
}

/// The pool of this process, since CUPTI has one client in a process and tells it nothing else.
pub(crate) static BUFFERS: Buffers = Buffers::new();

impl Buffers {
    pub(crate) const fn new() -> Buffers {
        Buffers(Mutex::new(Pool::new()))
    }

    /// A buffer to write to, unless there are too many already.
    pub(crate) fn lend(&self) -> Option<Buffer> {
        let mut pool = lock(&self.0);
        let buffer = match pool.free.pop() {
            Some(buffer) => buffer,
            None if pool.existing >= MOST_BUFFERS => return None,
            None => {
                pool.existing += 1;
                vec![0; BUFFER_WORDS].into_boxed_slice()
            }
        };
        pool.lent.insert(buffer.as_ptr().addr());
        Some(buffer)
    }

    /// Whether the buffer at an address is one of ours, which CUPTI gives back now. A profiler that was here before may
    /// have left some of its own.
    pub(crate) fn is_returned(&self, address: usize) -> bool {
        lock(&self.0).lent.remove(&address)
    }

    /// Takes a buffer that has been written to.
    pub(crate) fn hand_over(&self, filled: Filled) {
        lock(&self.0).filled.push_back(filled);
    }

    /// The buffer that was handed over first.
    pub(crate) fn take_filled(&self) -> Option<Filled> {
        lock(&self.0).filled.pop_front()
    }

    /// Takes a buffer that has been read.
    pub(crate) fn give_back(&self, buffer: Buffer) {
        lock(&self.0).free.push(buffer);
    }

    /// Frees the memory once CUPTI is gone. What it has not handed over until then stays with it.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = Pool::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_bounded_and_its_buffers_are_used_again() {
        let buffers = Buffers::new();
        let lent: Vec<Buffer> = std::iter::from_fn(|| buffers.lend()).collect();
        assert_eq!(lent.len() * BUFFER_WORDS * size_of::<u64>(), 64 << 20);
        let first = lent[0].as_ptr();
        for buffer in lent {
            buffers.hand_over(Filled { buffer, valid: 16, form: RecordForm::Whole });
        }
        assert!(buffers.lend().is_none());
        let filled = buffers.take_filled().unwrap();
        assert_eq!((filled.buffer.as_ptr(), filled.records().len()), (first, 16), "in order");
        buffers.give_back(filled.buffer);
        let again = buffers.lend().unwrap();
        assert_eq!(again.as_ptr(), first);
        assert!(buffers.lend().is_none());
        buffers.clear();
        assert!(buffers.take_filled().is_none() && buffers.lend().is_some());
    }

    #[test]
    fn a_length_beyond_the_buffer_is_not_believed() {
        let filled = Filled { buffer: vec![0; 2].into(), valid: 1000, form: RecordForm::Whole };
        assert_eq!(filled.records().len(), 16);
    }
}
