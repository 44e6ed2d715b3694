//! What there is to draw, and who finds it.

mod detail;
mod detail_reader;
mod historian;
mod loader;
mod snapshot;
mod source;

pub(crate) use detail::{
    Detail, Details, Passes, PassesWish, RankDetail, RankTime, TimelineDetail, TimelineWish, Wish,
};
pub(crate) use detail_reader::{DetailReader, DetailThread};
pub(crate) use historian::Historian;
#[cfg(test)]
pub(crate) use historian::read_step;
pub(crate) use loader::{Loader, load};
pub(crate) use snapshot::{RunFacts, Scope, Snapshot, Stage};
pub use source::Source;
