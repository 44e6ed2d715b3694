//! Memory that several streams and other ranks use at once, with borrows checked while the program runs.
//!
//! Streams order what uses a block, as on a GPU, so the compiler cannot know that two uses never meet. A ledger in each
//! block does: a use that overlaps another, where one of the two writes, is an error of the program and ends it. That
//! makes a forgotten wait a clear message, and the slices handed out here sound.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    marker::PhantomData,
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use bytemuck::Pod;
use stepscope_collector::Recorder;

use crate::{error::TrainError, lock::lock};

/// What memory comes in: a cache line, which aligns every number.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Blocks that were freed, to be handed out again; only a size there is none of is taken from the system.
pub(crate) struct Pool {
    recorder: Recorder,
    free: Mutex<HashMap<usize, Vec<Box<[Line]>>>>,
    /// Where all blocks are, handed out or not.
    reserved: Mutex<Vec<u64>>,
}

impl Pool {
    pub(crate) fn new(recorder: Recorder) -> Arc<Pool> {
        Arc::new(Pool { recorder, free: Mutex::default(), reserved: Mutex::default() })
    }

    fn take(&self, lines: usize) -> Box<[Line]> {
        let reused = lock(&self.free).get_mut(&lines).and_then(Vec::pop);
        reused.unwrap_or_else(|| {
            let fresh = vec![Line([0; 64]); lines].into_boxed_slice();
            let address = fresh.as_ptr() as u64;
            self.recorder.reserve(address, size_of_val(&*fresh) as u64);
            lock(&self.reserved).push(address);
            fresh
        })
    }

    /// Records that everything goes back to the system. Other ranks may still hold a view of it, for a moment.
    pub(crate) fn close(&self) {
        lock(&self.reserved).drain(..).for_each(|address| self.recorder.release(address));
    }

    fn give_back(&self, block: Box<[Line]>) {
        lock(&self.free).entry(block.len()).or_default().push(block);
    }
}

/// A block of memory, from when the stream comes to its allocation.
pub(crate) struct Memory {
    bytes: usize,
    pool: Arc<Pool>,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    /// Kept as a pointer: a reference to the whole block would deny the slices that are out.
    block: Option<NonNull<[Line]>>,
    /// Who uses which bytes now, and whether they write.
    borrows: Vec<(Range<usize>, bool)>,
}

impl Memory {
    pub(crate) fn new(bytes: usize, pool: Arc<Pool>) -> Memory {
        Memory { bytes, pool, ledger: Mutex::default() }
    }

    /// Takes the memory, and says where it is.
    pub(crate) fn materialize(&self) -> u64 {
        let block = self.pool.take(self.bytes.div_ceil(size_of::<Line>()));
        let block = NonNull::from(Box::leak(block));
        let before = lock(&self.ledger).block.replace(block);
        assert!(before.is_none(), "memory is taken once");
        address(block)
    }

    /// Where it is, once it is there.
    pub(crate) fn address(&self) -> Option<u64> {
        lock(&self.ledger).block.map(address)
    }

    fn borrow<E: Pod>(self: &Arc<Self>, elements: &Range<usize>, writes: bool) -> Result<Borrow<E>, TrainError> {
        let bytes = elements.start * size_of::<E>()..elements.end * size_of::<E>();
        let race = |why: String| Err(TrainError::Race(why));
        if bytes.start > bytes.end || bytes.end > self.bytes {
            return race(format!("bytes {bytes:?} of a block of {}", self.bytes));
        }
        let mut ledger = lock(&self.ledger);
        let Ledger { block, borrows } = &mut *ledger;
        let Some(block) = *block else {
            return race("it is used before it is allocated".into());
        };
        let meets = |(other, other_writes): &&(Range<usize>, bool)| {
            (writes || *other_writes) && other.start < bytes.end && bytes.start < other.end
        };
        if let Some((other, other_writes)) = borrows.iter().find(meets) {
            let verb = |writes| if writes { "writes" } else { "reads" };
            return race(format!("one {} bytes {other:?}, one {} {bytes:?}", verb(*other_writes), verb(writes)));
        }
        borrows.push((bytes.clone(), writes));
        // SAFETY: `bytes` lies within the block, as was checked above.
        let start = unsafe { block.cast::<u8>().add(bytes.start) }.cast::<E>();
        Ok(Borrow { memory: self.clone(), start, elements: elements.len(), bytes, writes, of: PhantomData })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let ledger = self.ledger.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(block) = ledger.block.take() {
            // SAFETY: it came from a box, this is the only place that takes it back, and no borrow outlives this.
            self.pool.give_back(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}

// SAFETY: the block is plain memory that belongs to this alone; who may touch which bytes of it, the ledger says.
unsafe impl Send for Memory {}
// SAFETY: shared, only the ledger gives access to the block, and it is behind a lock.
unsafe impl Sync for Memory {}

fn address(block: NonNull<[Line]>) -> u64 {
    block.as_ptr().cast::<u8>() as u64
}

/// A use of a block, written in its ledger until it is dropped.
struct Borrow<E> {
    memory: Arc<Memory>,
    start: NonNull<E>,
    elements: usize,
    bytes: Range<usize>,
    writes: bool,
    of: PhantomData<E>,
}

impl<E> Drop for Borrow<E> {
    fn drop(&mut self) {
        let mut ledger = lock(&self.memory.ledger);
        let mine = ledger.borrows.iter().position(|(bytes, writes)| *bytes == self.bytes && *writes == self.writes);
        if let Some(mine) = mine {
            ledger.borrows.swap_remove(mine);
        }
    }
}

/// Numbers being read.
pub(crate) struct Reading<E>(Borrow<E>);

impl<E: Pod> Deref for Reading<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        // SAFETY: the block lives as long as `memory`; lines are aligned for every `E`, which is plain data; and while
        // this stands in the ledger nobody has the same bytes for writing.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.elements) }
    }
}

/// Numbers being written.
pub(crate) struct Writing<E>(Borrow<E>);

impl<E: Pod> Deref for Writing<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        // SAFETY: the block lives as long as `memory`, and is aligned for plain data; while this stands in the ledger nobody else has
        // these bytes.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.elements) }
    }
}

impl<E: Pod> DerefMut for Writing<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        // SAFETY: the block lives as long as `memory`, and is aligned for plain data; while this stands in the ledger nobody else has
        // these bytes, and this borrow is the only one of `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.elements) }
    }
}

/// Elements of a block, as queued work holds them.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) memory: Arc<Memory>,
    pub(crate) range: Range<usize>,
}

impl View {
    pub(crate) fn read<E: Pod>(&self) -> Result<Reading<E>, TrainError> {
        self.memory.borrow(&self.range, false).map(Reading)
    }

    pub(crate) fn write<E: Pod>(&self) -> Result<Writing<E>, TrainError> {
        self.memory.borrow(&self.range, true).map(Writing)
    }

    /// A part of it, by elements.
    pub(crate) fn slice(&self, part: Range<usize>) -> View {
        let range = self.range.start + part.start..self.range.start + part.end;
        View { memory: self.memory.clone(), range }
    }

    /// Whether both are the same elements of one block.
    pub(crate) fn is(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.range == other.range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(elements: usize) -> View {
        let memory = Arc::new(Memory::new(4 * elements, Pool::new(Recorder::disabled())));
        memory.materialize();
        View { memory, range: 0..elements }
    }

    #[test]
    fn uses_that_meet_are_refused_if_one_writes() {
        let all = view(10);
        let (left, right) = (all.slice(0..5), all.slice(5..10));
        let reading = left.read::<f32>().unwrap();
        assert!(all.read::<f32>().is_ok() && right.write::<f32>().is_ok());
        let error = all.write::<f32>().err().unwrap().to_string();
        assert!(error.contains("one reads bytes 0..20, one writes 0..40"), "{error}");
        drop(reading);
        let mut writing = all.write::<f32>().unwrap();
        writing[9] = 2.5;
        assert!(right.read::<f32>().is_err());
        drop(writing);
        assert_eq!(right.read::<f32>().unwrap()[4], 2.5);
    }

    #[test]
    fn memory_is_there_only_once_it_is_allocated() {
        let memory = Arc::new(Memory::new(16, Pool::new(Recorder::disabled())));
        let view = View { memory, range: 0..4 };
        assert!(view.read::<f32>().err().unwrap().to_string().contains("before it is allocated"));
        assert!(view.slice(0..5).read::<f32>().is_err());
    }

    #[test]
    fn freed_blocks_are_used_again() {
        let pool = Pool::new(Recorder::disabled());
        let address = |bytes| Memory::new(bytes, pool.clone()).materialize();
        assert_eq!(address(1000), address(1001), "both are 16 lines");
    }
}
