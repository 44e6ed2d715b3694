//! A sequence of packets: events of one track, or of a few, in the order of time, each told by what is new in it.

use super::{
    labels::{Label, Labels, vocabulary},
    packets::Packets,
    schema::{
        Clock, ClockSnapshot, Data, INCREMENTAL_STATE_CLEARED, InternedData, TracePacket, TracePacketDefaults,
        TrackEvent, TrackEventDefaults,
    },
};
use crate::names::Names;

/// The clock of the whole trace. Trace processors of all versions take this one unless they are told otherwise.
pub(super) const TRACE_CLOCK: u32 = 6;
/// A clock that only one sequence has: each packet says how long it is after the one before.
const SEQUENCE_CLOCK: u32 = 64;

/// A sequence of events, in order.
pub(super) struct Sequence {
    id: u32,
    /// The time of its newest event.
    last: u64,
    labels: Labels,
}

impl Sequence {
    /// Begins a sequence. Events that do not say otherwise are on `track`.
    pub(super) fn begin(packets: &mut Packets<'_>, id: u32, track: Option<u64>, time: u64) -> Sequence {
        let clock =
            |clock_id, is_incremental| Clock { clock_id: Some(clock_id), timestamp: Some(time), is_incremental };
        let clocks = vec![clock(SEQUENCE_CLOCK, Some(true)), clock(TRACE_CLOCK, None)];
        packets.push(&TracePacket {
            data: Some(Data::ClockSnapshot(ClockSnapshot { clocks, primary_trace_clock: None })),
            trusted_packet_sequence_id: Some(id),
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
                track_event_defaults: track.map(|track| TrackEventDefaults { track_uuid: Some(track) }),
                timestamp_clock_id: Some(SEQUENCE_CLOCK),
            }),
            interned_data: Some(vocabulary()),
            first_packet_on_sequence: Some(true),
            timestamp: None,
        });
        Sequence { id, last: time, labels: Labels::default() }
    }

    /// The time of its newest event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends an event. A time before the newest event's is that one's.
    pub(super) fn push(&mut self, packets: &mut Packets<'_>, time: u64, event: &TrackEvent) {
        let delta = self.advance(time);
        packets.push_event(self.id, delta, event, None);
    }

    /// As [`Sequence::push`], with a name that stands in the sequence once.
    pub(super) fn push_named(
        &mut self,
        packets: &mut Packets<'_>,
        time: u64,
        event: &mut TrackEvent,
        label: Label,
        names: &Names,
    ) {
        let (number, interned): (u64, Option<InternedData>) = self.labels.number(label, names);
        event.name_iid = Some(number);
        let delta = self.advance(time);
        packets.push_event(self.id, delta, event, interned.as_ref());
    }

    /// As [`Sequence::push`], of an event that is bytes already.
    pub(super) fn push_encoded(&mut self, packets: &mut Packets<'_>, time: u64, event: &[u8]) {
        let delta = self.advance(time);
        packets.push_encoded(self.id, delta, event, None);
    }

    fn advance(&mut self, time: u64) -> u64 {
        let delta = time.saturating_sub(self.last);
        self.last += delta;
        delta
    }
}
