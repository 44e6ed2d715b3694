//! What there is to draw, and who finds it.

mod detail;
mod detail_reader;
mod loader;
mod snapshot;
mod source;
mod step_reader;

pub(crate) use detail::{
    Detail, DetailRequest, Details, Passes, PassesRequest, RankDetail, RankTime, TimelineDetail, TimelineRequest,
};
pub(crate) use detail_reader::{DetailReader, DetailThread};
pub(crate) use loader::{Loader, load};
pub(crate) use snapshot::{RunFacts, Scope, Snapshot, Stage};
pub use source::Source;
pub(crate) use step_reader::StepReader;
#[cfg(test)]
pub(crate) use step_reader::read_step;
