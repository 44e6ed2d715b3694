//! What there is to draw, and who finds it.

mod loader;
mod snapshot;
mod source;

pub(crate) use loader::{Loader, load};
pub(crate) use snapshot::{Scope, Snapshot, Stage};
pub use source::Source;
