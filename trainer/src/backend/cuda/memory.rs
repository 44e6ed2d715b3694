//! A device's memory: handed out by category, in order of the compute stream, every step of it recorded.
#![allow(unsafe_code, reason = "memory is an address to the driver")]

use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaStream, DriverError, result, sys::CUresult};
use stepscope_collector::Recorder;
use stepscope_traces::{CollectorNote, HeldMemory, MemoryCategory, OutOfMemory, now};

use super::cache::{Cache, Source};
use crate::{
    error::{MemoryInUse, TrainError},
    lock::lock,
};

/// What one rank has of a device's memory.
pub(crate) struct Memory(Mutex<Books>);

struct Books {
    cache: Cache,
    segments: Segments,
    /// What is handed out, by category.
    allocated: [u64; MemoryCategory::ALL.len()],
}

/// Segments come from the stream-ordered allocator, which makes room of what went back without waiting for the device.
struct Segments {
    stream: Arc<CudaStream>,
    recorder: Recorder,
    /// What is taken from the device.
    reserved: u64,
    /// What went wrong, other than that there is no memory.
    failure: Option<DriverError>,
}

/// A block that is handed out; it goes back, in order of the compute stream, when it is dropped.
pub(crate) struct Block {
    memory: Arc<Memory>,
    address: u64,
    bytes: u64,
    category: MemoryCategory,
}

impl Memory {
    pub(crate) fn new(stream: Arc<CudaStream>, recorder: Recorder) -> Arc<Memory> {
        let segments = Segments { stream, recorder, reserved: 0, failure: None };
        Arc::new(Memory(Mutex::new(Books { cache: Cache::default(), segments, allocated: Default::default() })))
    }

    /// Hands out a block; what is in it is undefined.
    pub(crate) fn allocate(self: &Arc<Memory>, bytes: u64, category: MemoryCategory) -> Result<Block, TrainError> {
        if bytes == 0 {
            return Ok(self.nothing());
        }
        let mut books = lock(&self.0);
        let Books { cache, segments, allocated } = &mut *books;
        let taken = cache.allocate(bytes, segments);
        if let Some(error) = segments.failure.take() {
            return Err(TrainError::device("take memory")(error));
        }
        match taken {
            Some(address) => {
                allocated[category as usize] += bytes;
                // Under the lock, so that events are recorded in the order in which they happened.
                segments.recorder.allocate(address, bytes, category);
                Ok(Block { memory: self.clone(), address, bytes, category })
            }
            None => Err(books.out_of_memory(bytes, category)),
        }
    }

    /// A block without a byte.
    pub(crate) fn nothing(self: &Arc<Memory>) -> Block {
        Block { memory: self.clone(), address: 0, bytes: 0, category: MemoryCategory::Other }
    }
}

impl Books {
    /// Notes in the run that there is no memory left, and why. What is held is noted, too: blocks have the device's times in the
    /// memory table, and those that go back while the error does have that of the last kernel.
    fn out_of_memory(&self, wanted: u64, category: MemoryCategory) -> TrainError {
        let in_use = self.in_use();
        self.segments.recorder.note(CollectorNote::OutOfMemory(OutOfMemory {
            times: 1,
            time_ns: now(),
            requested_bytes: wanted,
            free_bytes: in_use.free,
            stack: Vec::new(),
            held: Some(HeldMemory {
                allocated_bytes: in_use.categories.iter().copied().collect(),
                reserved_bytes: self.segments.reserved,
            }),
            expandable_segments_would_do: None,
        }));
        TrainError::OutOfMemory { wanted, category, in_use }
    }

    fn in_use(&self) -> Box<MemoryInUse> {
        let categories = MemoryCategory::ALL.iter().copied().zip(self.allocated).filter(|(_, bytes)| *bytes > 0);
        let allocated: u64 = self.allocated.iter().sum();
        let (free, total) = result::mem_get_info().map_or((None, None), |(free, total)| (Some(free), Some(total)));
        Box::new(MemoryInUse {
            categories: categories.collect(),
            fragmentation: self.segments.reserved - allocated.min(self.segments.reserved),
            free: free.map(|bytes| bytes as u64),
            total: total.map(|bytes| bytes as u64),
        })
    }
}

impl Source for Segments {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        // SAFETY: the stream lives as long as the context whose memory this is.
        match unsafe { result::malloc_async(self.stream.cu_stream(), bytes as usize) } {
            Ok(address) => {
                self.reserved += bytes;
                self.recorder.reserve(address, bytes);
                Some(address)
            }
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => None,
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    fn settle(&mut self) {
        self.failure = self.failure.take().or(self.stream.synchronize().err());
    }

    fn give_back(&mut self, address: u64, bytes: u64) {
        // What cannot be given back ends with the context, which is then broken anyway.
        // SAFETY: the segment came from `take`, and work that used it is before this in the stream.
        let _ = unsafe { result::free_async(address, self.stream.cu_stream()) };
        self.reserved -= bytes;
        self.recorder.release(address);
    }
}

impl Block {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut books = lock(&self.memory.0);
            books.allocated[self.category as usize] -= self.bytes;
            books.segments.recorder.free(self.address);
            books.cache.free(self.address);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Books { cache, segments, .. } = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        cache.give_back_unused(segments);
    }
}
