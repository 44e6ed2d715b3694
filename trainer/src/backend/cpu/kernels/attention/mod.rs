//! Attention with grouped queries, in tiles, so that no matrix of sequence × sequence exists.

mod backward;
mod forward;
mod merge;
mod tile;

pub(crate) use self::{backward::attention_backward, forward::attention, merge::merge_attention};
