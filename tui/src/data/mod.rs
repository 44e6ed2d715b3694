//! What there is to draw, as plain data.

mod detail;
mod snapshot;
mod source;

pub(crate) use detail::{
    Detail, DetailRequest, Details, Passes, PassesRequest, RankDetail, RankTime, TimelineDetail, TimelineRequest,
};
pub(crate) use snapshot::{RunFacts, Scope, Snapshot, Stage};
pub(crate) use source::RunChoice;
pub use source::Source;
