//! Communication that no compute covers, as stretches of time on a track of their own.

use super::{event::Event, labels::Label, slices::Slices, tracks::TrackPlace, writing::Writing};
use crate::{names::Names, vocabulary::SpanKind};

const NAME: &str = "exposed communication";
/// Where its track is among those of a rank: below the annotations, and above the streams.
const ORDER: i32 = 64;

/// Finds out what is exposed, of activity that is shown in order of its beginning.
pub(super) struct Exposed {
    slices: Slices,
    /// Until when compute that has begun goes on, and communication.
    computes_until: u64,
    talks_until: u64,
    /// Up to here it is known what is exposed.
    known_until: u64,
    /// A stretch that may go on.
    stretch: Option<(u64, u64)>,
}

impl Exposed {
    pub(super) fn new(parent: u64) -> Exposed {
        let slices = Slices::new(TrackPlace { parent, order: ORDER, name: NAME.into() }, false);
        Exposed { slices, computes_until: 0, talks_until: 0, known_until: 0, stretch: None }
    }

    /// Takes an activity.
    pub(super) fn take(&mut self, kind: SpanKind, (start, end): (u64, u64), into: &mut Writing<'_>) {
        let computes = kind == SpanKind::Kernel;
        if !computes && !kind.is_communication() {
            return;
        }
        // All that began before this is known, and so is what of it lies before this.
        self.advance(start, into);
        let until = if computes { &mut self.computes_until } else { &mut self.talks_until };
        *until = end.max(*until);
    }

    /// What is exposed up to a time.
    fn advance(&mut self, time: u64, into: &mut Writing<'_>) {
        let (from, to) = (self.known_until.max(self.computes_until), time.min(self.talks_until));
        self.known_until = self.known_until.max(time);
        if from >= to {
            return;
        }
        match &mut self.stretch {
            Some((_, end)) if *end == from => *end = to,
            _ => {
                self.write(into);
                self.stretch = Some((from, to));
            }
        }
    }

    fn write(&mut self, into: &mut Writing<'_>) {
        let Some(times) = self.stretch.take() else { return };
        let mut event = Event::default();
        event.begin(None);
        self.slices.push(into, times, &mut event, (Label::Fixed(NAME), &Names::default()));
        into.written.stretches += 1;
    }

    /// Writes the rest.
    pub(super) fn finish(&mut self, into: &mut Writing<'_>) {
        self.advance(u64::MAX, into);
        self.write(into);
        self.slices.finish(into);
    }
}
