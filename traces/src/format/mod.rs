//! The bytes of a table file: an Arrow IPC stream in which every message can be checked on its own.
//!
//! Each message is laid out as Arrow's stream format has it. Two checksums (CRC-32, as zlib has it) stand in the
//! last eight bytes of the padding behind the flatbuffer, which every Arrow reader skips:
//!
//! ```text
//! FFFFFFFF │ head length: i32 │ flatbuffer, padded to 8 │ CRC of the head │ CRC of the body │ body, padded to 8
//!          ╰──────────────────── the head's checksum covers this and the body's checksum
//! ```
//!
//! So a reader knows whether it can trust a length before it follows it. A damaged body costs one batch; a damaged
//! head costs the bytes up to the next head that checks out. Each batch also says the number of its first row and
//! the time it covers (in the message's own metadata), so what is missing is counted in rows, and a reader that
//! wants a time window skips the other batches without decompressing them.
//!
//! Encoding is written here over the generated message types of `arrow-ipc`, because that crate's writer can set
//! neither message metadata nor checksums, and its reader cannot go on after damage.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod frame;
pub(crate) mod scan;

/// The newest version of the run directory this library reads, and the one it writes. Version 1 does not say who launched
/// what: its spans have no origin. Files of version 2 may not say who asked for memory either.
pub const SCHEMA_VERSION: u32 = 2;

/// Keys of a batch's metadata.
pub(crate) mod key {
    pub(crate) const FIRST_ROW: &str = "first_row";
    pub(crate) const FROM_NS: &str = "from_ns";
    pub(crate) const TO_NS: &str = "to_ns";
    /// In the metadata of a file's schema.
    pub(crate) const SCHEMA: &str = "stepscope.schema";
}
