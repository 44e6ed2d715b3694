//! Copies of many parts at once.

use cudarc::driver::sys::CUstream;

use super::{Kernels, THREADS, launch::Launch, source::Source};
use crate::error::TrainError;

/// Parts that a launch takes with it: those that the kernel's text says.
const PARTS: usize = 64;
/// Bytes that a thread copies at a time.
const PIECE: usize = 16;
/// Blocks to a part at most: enough together to keep a large GPU busy.
const BLOCKS: usize = 64;

/// Bytes that lie together and go elsewhere; none of them go where others come from. They are numbers of two bytes or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The address of the first, and where it goes.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// How many.
    pub(crate) bytes: u64,
}

impl Kernels {
    /// Copies parts.
    pub(crate) fn copy_parts(&self, stream: CUstream, parts: &[Part]) -> Result<(), TrainError> {
        for parts in parts.chunks(PARTS) {
            let longest = parts.iter().map(|part| part.bytes as usize).max().unwrap_or(0);
            let blocks = longest.div_ceil(PIECE * THREADS).min(BLOCKS);
            let mut table = [0; 3 * PARTS];
            for (row, part) in table.chunks_exact_mut(3).zip(parts) {
                row.copy_from_slice(&[part.from, part.to, part.bytes]);
            }
            let launch = Launch::grid([blocks, parts.len(), 1], THREADS).structure(&table);
            self.start(Source::Parts, "copy_parts", launch, stream)?;
        }
        Ok(())
    }
}
