//! A sequence of packets: the events of one track, in the order of time.
//!
//! A packet takes 14 bytes before it says anything: 2 as a part of the file, 6 for its time (7 when more than 34 s have
//! passed), 2 for its sequence, 2 around its event, and 2 for the event's type. A slice is two packets, since the schema has
//! none with a duration in nanoseconds, and its name and its category take 2 bytes each: 32 in all. An argument takes at
//! least 6 more, so that one slice with arguments never stays below 35.
//!
//! Times are those of the trace's own clock. A clock of each sequence, in which a packet says how long it is after the one
//! before, would take two or three bytes less for each; but a trace processor then converts every time, and counts what its
//! cache misses among its statistics, which are empty for a trace without fault.

use super::{
    event::Event,
    labels::{Label, Labels, vocabulary},
    packets::Packets,
    schema::{
        INCREMENTAL_STATE_CLEARED, InternedData, NEEDS_INCREMENTAL_STATE, TracePacket, TracePacketDefaults, TrackEvent,
        TrackEventDefaults,
    },
};
use crate::names::Names;

/// What a sequence is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Slices, whose names, categories and arguments have numbers.
    Slices,
    /// Values after every event.
    Values,
    /// Values that are sampled, or moments: there are few.
    Few,
}

/// A sequence of events, in order.
pub(super) struct Sequence {
    id: u32,
    /// The time of its newest event.
    last: u64,
    labels: Labels,
}

impl Sequence {
    /// Begins a sequence of events on a track.
    pub(super) fn begin(packets: &mut Packets<'_>, id: u32, track: u64, content: Content) -> Sequence {
        packets.push(&TracePacket {
            trusted_packet_sequence_id: Some(id),
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED | NEEDS_INCREMENTAL_STATE),
            trace_packet_defaults: Some(TracePacketDefaults {
                track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(track) }),
            }),
            interned_data: (content == Content::Slices).then(vocabulary),
            first_packet_on_sequence: Some(true),
            ..Default::default()
        });
        Sequence { id, last: 0, labels: Labels::default() }
    }

    /// The time of its newest event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends an event. A time before the newest event's is that one's.
    pub(super) fn push(&mut self, packets: &mut Packets<'_>, time: u64, event: &TrackEvent) {
        self.last = self.last.max(time);
        packets.push_event(self.id, self.last, event, None);
    }

    /// Appends the beginning of a slice, with a name that stands in the sequence once.
    pub(super) fn push_named(
        &mut self,
        packets: &mut Packets<'_>,
        time: u64,
        event: &mut Event,
        (label, names): (Label, &Names),
    ) {
        let (name, new_name) = self.labels.number(label, names);
        let (category, new_category) = match event.tags() {
            Some(tags) => {
                let (category, new) = self.labels.category(tags);
                (Some(category), new)
            }
            None => (None, None),
        };
        let new_texts = match event.origin() {
            Some(origin) => {
                let (texts, new) = self.labels.origin(origin, names);
                texts.iter().for_each(|(argument, number)| event.text(*argument, *number));
                new
            }
            None => Vec::new(),
        };
        let is_new = new_name.is_some() || new_category.is_some() || !new_texts.is_empty();
        let interned = is_new.then(|| InternedData {
            event_names: new_name.into_iter().collect(),
            event_categories: new_category.into_iter().collect(),
            debug_annotation_string_values: new_texts,
            ..InternedData::default()
        });
        self.last = self.last.max(time);
        packets.push_encoded(self.id, self.last, event.named(name, category), interned.as_ref());
    }

    /// As [`Sequence::push`], of an event that is bytes already.
    pub(super) fn push_encoded(&mut self, packets: &mut Packets<'_>, time: u64, event: &[u8]) {
        self.last = self.last.max(time);
        packets.push_encoded(self.id, self.last, event, None);
    }
}
