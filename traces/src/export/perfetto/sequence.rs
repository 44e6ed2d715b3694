//! A sequence of packets: events of one track, or of a few, in the order of time.
//!
//! Times are those of the trace's own clock. A clock of each sequence, in which a packet says how long it is after the one
//! before, would take two bytes less for each; but a trace processor then converts every time, and counts what its cache
//! misses among its statistics, which are empty for a trace without fault.

use super::{
    event::Event,
    labels::{Label, Labels, vocabulary},
    packets::Packets,
    schema::{
        INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE, TracePacket, TracePacketDefaults, TrackEvent,
        TrackEventDefaults,
    },
};
use crate::names::Names;

/// A sequence of events, in order.
pub(super) struct Sequence {
    id: u32,
    /// The time of its newest event.
    last: u64,
    labels: Labels,
}

impl Sequence {
    /// Begins a sequence. Events that do not say otherwise are on `track`.
    pub(super) fn begin(packets: &mut Packets<'_>, id: u32, track: Option<u64>) -> Sequence {
        packets.push(&TracePacket {
            trusted_packet_sequence_id: Some(id),
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED | NEEDS_INCREMENTAL_STATE),
            trace_packet_defaults: track.map(|track| TracePacketDefaults {
                track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(track) }),
            }),
            interned_data: Some(vocabulary()),
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
        let (number, interned) = self.labels.number(label, names);
        self.last = self.last.max(time);
        packets.push_encoded(self.id, self.last, event.named(number), interned.as_ref());
    }

    /// As [`Sequence::push`], of an event that is bytes already.
    pub(super) fn push_encoded(&mut self, packets: &mut Packets<'_>, time: u64, event: &[u8]) {
        self.last = self.last.max(time);
        packets.push_encoded(self.id, self.last, event, None);
    }
}
