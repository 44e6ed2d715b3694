//! What is to be written of a run: what it says itself, and what an analysis adds to it, as plain data.

use super::{
    detail::Detail,
    marks::{Mark, NamedStretch, Stretches},
    tracks::Unit,
};
use crate::{
    ids::{Step, Stream},
    reader::RankDirectory,
    window::Window,
};

/// A trace as a whole.
#[derive(Clone, Debug, Default)]
pub struct TracePlan {
    /// What people call the run.
    pub name: String,
    /// What is known of it, by name.
    pub metadata: Vec<(String, String)>,
    /// The stretch of time to show first, in the clock that all ranks share.
    pub view: Option<(i64, i64)>,
    /// What to add to the clock that all ranks share, so that the trace begins near zero: small times take few bytes.
    pub shift: i64,
    /// Its steps, and what is known of each.
    pub steps: Vec<NamedStretch>,
    /// What stands out in all of it.
    pub marks: Vec<Mark>,
    /// Stretches of time that have tracks of their own.
    pub stretches: Vec<Stretches>,
    /// Figures of all ranks together, over time.
    pub series: Vec<Series>,
    /// Which levels are written.
    pub detail: Detail,
    /// How many bytes there may be.
    pub limit: u64,
    /// The number of the first flow that no [`Note`] has.
    pub next_flow: u64,
}

/// A figure over time.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// What it counts in.
    pub unit: Unit,
    /// Times in the clock that all ranks share, in order, and values.
    pub values: Vec<(i64, f64)>,
}

/// One rank of a trace.
pub struct RankPlan<'a> {
    /// Where it is.
    pub rank: &'a RankDirectory,
    /// What it is called.
    pub name: String,
    /// Its steps, and what is known of each, in the clock that all ranks share.
    pub steps: Vec<NamedStretch>,
    /// Its place among all ranks.
    pub order: i32,
    /// From its clock to the one that all ranks share.
    pub align: &'a dyn Fn(i64) -> i64,
    /// Whether a step is written; of spans without one, those in the window are.
    pub is_chosen: &'a dyn Fn(Option<Step>) -> bool,
    /// What of its time is written.
    pub window: Window,
    /// Its streams, in the order in which they are shown, and what they are called.
    pub streams: Vec<(Option<Stream>, String)>,
    /// The stream that computes most.
    pub main_stream: Option<Stream>,
    /// Whether it recorded calls that launch work.
    pub has_launches: bool,
    /// What of its time was analyzed.
    pub analyzed: Window,
    /// What is known of its communication: of what was analyzed and belongs to steps that are chosen, in the order of its
    /// files.
    pub note: &'a dyn Fn(usize) -> Note,
    /// What stands out in it.
    pub marks: Vec<Mark>,
    /// Stretches of time that have tracks of their own.
    pub stretches: Vec<Stretches>,
    /// What a counter counts in, by its name.
    pub unit: &'a dyn Fn(&str) -> Unit,
}

/// What is known of a rank's part in a collective, or of one side of a message, from the other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Note {
    /// The flow that ties all sides together, where there are others.
    pub flow: Option<u64>,
    /// The least time over its ranks, where that is known.
    pub own_ns: Option<u64>,
    /// What crosses a rank's link, as a share of the message.
    pub bus_factor: Option<f32>,
}
