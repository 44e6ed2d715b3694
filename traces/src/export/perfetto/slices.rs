//! A track of slices, which begin and end in order.
//!
//! A trace has beginnings and ends, and an end is that of whatever began last on its track. So slices on one track have to
//! lie beside or inside of each other. What overlaps in any other way goes to another track of the same name and place, which
//! the UI shows as one; there are a few of those, and what fits none of them is clipped to where the last one is free again.

use super::{
    event::{END, Event},
    labels::Label,
    packets::Packets,
    parents::Inside,
    sequence::{Content, Sequence},
    tracks::TrackPlace,
    writing::Writing,
};
use crate::{ids::Step, names::Names, vocabulary::Phase};

/// How many tracks stand for one.
const MOST_LANES: usize = 8;

/// A track of slices, with those beside it.
pub(super) struct Slices {
    place: TrackPlace,
    /// Whether a slice may lie inside of another one.
    nests: bool,
    lanes: Vec<OpenSlices>,
    /// How many were clipped.
    pub(super) clipped: u64,
}

struct OpenSlices {
    sequence: Sequence,
    /// What is around all that is open, from the outermost, and until when it goes on as far as is known.
    around: Vec<(Label, u64)>,
    pass: (Option<Step>, Option<Phase>),
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

    /// Lets what is around the next slice begin, and what is not end.
    fn surround(&mut self, into: &mut Writing<'_>, (start, end): (u64, u64), inside: Inside<'_>, names: &Names) {
        let goes_on = |((label, _), wanted): &(&(Label, u64), &Label)| label == *wanted;
        let shared = match self.pass == inside.pass {
            true => self.around.iter().zip(inside.around).take_while(goes_on).count(),
            false => 0,
        };
        self.end_around(&mut into.packets, shared);
        self.pass = inside.pass;
        let mut event = Event::default();
        for label in &inside.around[shared..] {
            event.begin(None);
            self.sequence.push_named(&mut into.packets, start, &mut event, (*label, names));
            self.around.push((*label, end));
            into.written.parents += 1;
        }
        self.around.iter_mut().for_each(|(_, until)| *until = end.max(*until));
    }

    /// Ends what is around, but for so many of the outermost.
    fn end_around(&mut self, packets: &mut Packets<'_>, but: usize) {
        for (_, end) in self.around.drain(but..).rev() {
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
    pub(super) fn new(place: TrackPlace, nests: bool) -> Slices {
        Slices { place, nests, lanes: Vec::new(), clipped: 0 }
    }

    /// Appends a slice: what it says, but for its name, is in `event`.
    pub(super) fn push(
        &mut self,
        into: &mut Writing<'_>,
        times: (u64, u64),
        event: &mut Event,
        label: (Label, &Names),
    ) {
        self.push_inside(into, times, event, label, Inside::default());
    }

    /// Appends a slice inside of what is around it, which neighbors of one pass share.
    pub(super) fn push_inside(
        &mut self,
        into: &mut Writing<'_>,
        (start, end): (u64, u64),
        event: &mut Event,
        label: (Label, &Names),
        inside: Inside<'_>,
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
        lane.surround(into, (start, end), inside, label.1);
        lane.sequence.push_named(&mut into.packets, start, event, label);
        lane.open.push(end);
    }

    fn new_lane(&self, into: &mut Writing<'_>) -> OpenSlices {
        let track = into.track(&self.place);
        let sequence = into.sequence(track, Content::Slices);
        OpenSlices { sequence, around: Vec::new(), pass: (None, None), open: Vec::new() }
    }

    /// Ends everything.
    pub(super) fn finish(&mut self, into: &mut Writing<'_>) {
        for lane in &mut self.lanes {
            lane.close_until(&mut into.packets, u64::MAX);
            lane.end_around(&mut into.packets, 0);
        }
    }
}
