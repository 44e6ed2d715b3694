//! What other tools recorded, as runs.

pub(crate) mod kineto;
mod write;
