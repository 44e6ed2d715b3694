//! How ranks that are processes find each other, hear of each other, and end together.
//!
//! Rank 0 has a [`hub`](Hub); every rank, rank 0 too, has a [`Link`] to it. What goes through it is small: who is there,
//! blobs that all ranks exchange, and how far each one is. Tensors go another way. Only those who know the secret of the
//! job come in, here and between ranks ([`Gate`]).

mod frame;
mod gate;
mod handshake;
mod hosts;
mod hub;
mod link;
mod listening;
mod message;
mod patience;
mod progress;
mod rank_assignment;
mod secret;
mod slurm;
mod until;
mod watchdog;

pub(crate) use self::{
    frame::{receive, send},
    gate::Gate,
    hub::Hub,
    link::{Link, introduce},
    progress::{Channel, Operation, Progress},
    secret::{SECRET, random_letters},
};
pub use self::{patience::Patience, rank_assignment::RankAssignment, secret::Secret, slurm::SlurmStep};

#[cfg(test)]
mod tests;
