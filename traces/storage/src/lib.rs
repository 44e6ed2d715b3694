//! Runs in object storage: brought here to be read, and sent there while they are recorded.
//!
//! Recording is local and reading is local. What is in between is here: [`bring`] copies a run, or what another tool
//! recorded, into a folder, and fetches again only what has changed. [`Sending`] copies a run that grows into a store, so
//! that what arrived is readable at every moment.

mod cache;
mod contents;
mod error;
mod fetching;
mod location;
mod patience;
mod pieces;
mod refusal;
mod run_files;
mod sending;
mod settings;
mod store;

pub use cache::{Brought, bring};
pub use error::StorageError;
pub use location::Location;
pub use patience::Patience;
pub use sending::{Sending, Sent};
