//! The program's own profiler, as our module in its Python tells of it.

use super::for_python;
use crate::other_profiler;

/// Says that PyTorch's profiler is about to begin. Returns when CUPTI is free for it, within a few seconds at most.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_profiler_begins() {
    for_python(other_profiler::begins);
}

/// Says that PyTorch's profiler has ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_profiler_ends() {
    for_python(other_profiler::ends);
}
