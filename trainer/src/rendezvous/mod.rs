//! How ranks that are processes find each other, hear of each other, and end together.
//!
//! Rank 0 has a [`hub`](Hub); every rank, rank 0 too, has a [`Link`] to it. What goes through it is small: who is there,
//! blobs that all ranks exchange, and how far each one is. Tensors go another way.

mod frame;
mod hosts;
mod hub;
mod link;
mod message;
mod patience;
mod progress;
mod rank_assignment;
mod watchdog;

pub(crate) use self::{
    frame::{receive, send},
    hub::Hub,
    link::Link,
    progress::{Channel, Operation, Progress},
};
pub use self::{patience::Patience, rank_assignment::RankAssignment};

#[cfg(test)]
mod tests;
