//! A track of slices, which begin and end in order.
//!
//! A trace has beginnings and ends, and an end is that of whatever began last on its track. So slices on one track have to
//! lie beside or inside of each other. What overlaps in any other way goes to another track beside it; there are a few of
//! those, and what fits none of them is clipped to where the last one is free again.

use super::{
    event::{END, Event},
    labels::Label,
    packets::Packets,
    sequence::{Content, Sequence},
    writing::Writing,
};
use crate::names::Names;

/// How many tracks stand for one.
pub(super) const MOST_LANES: usize = 8;

/// A track of slices, with those beside it.
pub(super) struct Slices {
    /// The thread it is, of its process.
    thread: Thread,
    /// Whether a slice may lie inside of another one.
    nests: bool,
    lanes: Vec<OpenSlices>,
    /// How many were clipped.
    pub(super) clipped: u64,
}

/// A thread of a process, as far as a trace is concerned.
pub(super) struct Thread {
    pub(super) process: i32,
    /// The number of the first lane; the others follow.
    pub(super) first: i32,
    pub(super) name: String,
}

struct OpenSlices {
    sequence: Sequence,
    /// The ends of what has begun, the last to end first.
    open: Vec<u64>,
}

impl OpenSlices {
    /// Ends what ends until then.
    fn close_until(&mut self, packets: &mut Packets<'_>, time: u64) {
        while let Some(end) = self.open.pop_if(|end| *end <= time) {
            self.sequence.push_encoded(packets, end, &END);
        }
    }

    /// Whether something may begin at a time and end at another, when what has ended by then is closed.
    fn takes(&self, start: u64, end: u64, nests: bool) -> bool {
        let still_open = self.open.iter().rev().find(|open| **open > start);
        self.sequence.last() <= start && still_open.is_none_or(|open| nests && end <= *open)
    }

    /// When all that has begun is over.
    fn free(&self) -> u64 {
        self.open.first().map_or(self.sequence.last(), |end| self.sequence.last().max(*end))
    }
}

impl Slices {
    pub(super) fn new(thread: Thread, nests: bool) -> Slices {
        Slices { thread, nests, lanes: Vec::new(), clipped: 0 }
    }

    /// Appends a slice: what it says, but for its name, is in `event`.
    pub(super) fn push(
        &mut self,
        into: &mut Writing<'_>,
        (start, end): (u64, u64),
        event: &mut Event,
        label: (Label, &Names),
    ) {
        let nests = self.nests;
        let (lane, start, end) = match self.lanes.iter().position(|lane| lane.takes(start, end, nests)) {
            Some(lane) => (lane, start, end),
            None if self.lanes.len() < MOST_LANES => {
                self.lanes.push(self.new_lane(into));
                (self.lanes.len() - 1, start, end)
            }
            None => {
                self.clipped += 1;
                let free = self.lanes[MOST_LANES - 1].free();
                (MOST_LANES - 1, start.max(free), end.max(free))
            }
        };
        let lane = &mut self.lanes[lane];
        lane.close_until(&mut into.packets, start);
        lane.sequence.push_named(&mut into.packets, start, event, label);
        lane.open.push(end);
    }

    fn new_lane(&self, into: &mut Writing<'_>) -> OpenSlices {
        let Thread { process, first, name } = &self.thread;
        let number = self.lanes.len();
        let name = if number == 0 { name.clone() } else { format!("{name} (overlapping {number})") };
        let track = into.thread(*process, first + number as i32, name);
        OpenSlices { sequence: into.sequence(track, Content::Slices), open: Vec::new() }
    }

    /// Ends everything.
    pub(super) fn finish(&mut self, into: &mut Writing<'_>) {
        self.lanes.iter_mut().for_each(|lane| lane.close_until(&mut into.packets, u64::MAX));
    }
}
