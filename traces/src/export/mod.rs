//! What a run is for other tools.

pub mod perfetto;
