//! What the program says of itself: its NVTX ranges.
//!
//! CUPTI would tell of ranges too, in records. But NVTX would have to be given to CUPTI for that, which in its version 13.0
//! ends some programs (github.com/NVIDIA/NVTX/issues/125), and such a record comes too late to say in which step a kernel was
//! launched. So NVTX is given to us: a range is then an annotation like a recorder's own, and what its thread launches
//! inside of it carries the step and the phase.
//!
//! | file | idea |
//! |---|---|
//! | `interface.rs` | NVTX's tables, and how to enter ourselves there |
//! | `attributes.rs` | its structure of what a range is called |
//! | `calls.rs` | the functions that it then calls |
//! | `texts.rs` | strings and domains it has us keep |
//! | `ranges.rs` | which ranges are open, on each thread and in the process, and where that puts the program |
//! | `meaning.rs` | what a name says: a step, a phase |
//! | `operators.rs` | what PyTorch says of its operators, in steps that are looked at |

mod attributes;
mod calls;
mod interface;
mod meaning;
pub(crate) mod operators;
mod ranges;
mod texts;

pub(crate) use interface::{GetExportTable, attach};
