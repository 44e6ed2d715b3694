//! SQLite databases that profilers write, read as what they are: files that somebody else made.

mod database;
mod row;

pub(crate) use database::{Database, Lookup, TableColumn};
pub(crate) use row::Row;

/// What every SQLite database begins with.
pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
