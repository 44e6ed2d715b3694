//! Packets as bytes, one after another, and counted.

use std::io::{self, Write};

use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message},
};

use super::{
    error::ExportError,
    schema::{InternedData, NEEDS_INCREMENTAL_STATE, TracePacket, TrackEvent},
};

/// How much is written at once.
const CHUNK: usize = 1 << 18;

/// Writes packets as they are made.
pub(super) struct Packets<'a> {
    into: &'a mut dyn Write,
    pending: Vec<u8>,
    /// An event, before its length is known.
    event: Vec<u8>,
    written: u64,
    limit: u64,
    /// What went wrong first: whoever makes packets need not look at each.
    failed: Option<ExportError>,
}

impl<'a> Packets<'a> {
    /// Writes at most `limit` bytes.
    pub(super) fn new(into: &'a mut dyn Write, limit: u64) -> Packets<'a> {
        Packets { into, pending: Vec::with_capacity(2 * CHUNK), event: Vec::new(), written: 0, limit, failed: None }
    }

    /// Appends a packet.
    pub(super) fn push(&mut self, packet: &TracePacket) {
        message::encode(PACKET, packet, &mut self.pending);
        self.make_room();
    }

    /// Appends an event of a sequence. Most of a trace is made of these, so that the packet around it is laid out here. It
    /// says that it needs what came before only where it adds to that: of a file nothing is lost on the way.
    pub(super) fn push_event(&mut self, sequence: u32, time: u64, event: &TrackEvent, interned: Option<&InternedData>) {
        let mut bytes = std::mem::take(&mut self.event);
        bytes.clear();
        event.encode_raw(&mut bytes);
        self.push_encoded(sequence, time, &bytes, interned);
        self.event = bytes;
    }

    /// As [`Packets::push_event`], of an event that is bytes already.
    pub(super) fn push_encoded(&mut self, sequence: u32, time: u64, event: &[u8], interned: Option<&InternedData>) {
        let length_of = |value: u64| 1 + encoded_len_varint(value);
        let length = length_of(time)
            + length_of(sequence.into())
            + length_of(event.len() as u64)
            + event.len()
            + interned.map_or(0, |interned| {
                message::encoded_len(INTERNED_DATA, interned) + length_of(NEEDS_INCREMENTAL_STATE.into())
            });
        let into = &mut self.pending;
        encode_key(PACKET, WireType::LengthDelimited, into);
        encode_varint(length as u64, into);
        encode_key(TIMESTAMP, WireType::Varint, into);
        encode_varint(time, into);
        encode_key(SEQUENCE, WireType::Varint, into);
        encode_varint(sequence.into(), into);
        encode_key(TRACK_EVENT, WireType::LengthDelimited, into);
        encode_varint(event.len() as u64, into);
        into.extend_from_slice(event);
        if let Some(interned) = interned {
            message::encode(INTERNED_DATA, interned, into);
            encode_key(SEQUENCE_FLAGS, WireType::Varint, into);
            encode_varint(NEEDS_INCREMENTAL_STATE.into(), into);
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        if self.pending.len() >= CHUNK {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        self.written += self.pending.len() as u64;
        if self.failed.is_none() {
            if self.written > self.limit {
                self.failed = Some(ExportError::TooLarge);
            } else if let Err(error) = self.into.write_all(&self.pending) {
                self.failed = Some(ExportError::Write(error));
            }
        }
        self.pending.clear();
    }

    /// What went wrong, if anything did.
    pub(super) fn check(&mut self) -> Result<(), ExportError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Whether something went wrong: what is made now goes nowhere.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes what is pending; how many bytes there were.
    pub(super) fn finish(mut self) -> Result<u64, ExportError> {
        self.write_out();
        self.check()?;
        self.into.flush().map_err(ExportError::Write)?;
        Ok(self.written)
    }
}

/// Numbers of fields in [`super::schema`].
const PACKET: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;

// Each of those takes one byte with its type.
const _: () = assert!(SEQUENCE_FLAGS < 16);

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> ExportError {
        ExportError::Write(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::perfetto::schema::{Data, EventType, Interned, Trace};

    #[test]
    fn what_is_laid_out_by_hand_is_what_the_schema_says() {
        let event =
            TrackEvent { r#type: Some(EventType::SliceBegin as i32), name_iid: Some(300), ..Default::default() };
        let names = vec![Interned { iid: Some(300), text: Some("matmul".into()) }];
        let interned = InternedData { event_names: names, ..Default::default() };
        let mut bytes = Vec::new();
        let mut packets = Packets::new(&mut bytes, u64::MAX);
        packets.push_event(7, 1_000_000, &event, Some(&interned));
        packets.push_event(200, 0, &event, None);
        assert_eq!(packets.finish().unwrap(), bytes.len() as u64);
        let packet = |sequence, time, interned_data: Option<InternedData>| TracePacket {
            timestamp: Some(time),
            trusted_packet_sequence_id: Some(sequence),
            sequence_flags: interned_data.as_ref().map(|_| NEEDS_INCREMENTAL_STATE),
            data: Some(Data::TrackEvent(event.clone())),
            interned_data,
            ..Default::default()
        };
        let expected = [packet(7, 1_000_000, Some(interned)), packet(200, 0, None)];
        assert_eq!(Trace::decode(bytes.as_slice()).unwrap().packet, expected);
    }

    #[test]
    fn too_much_is_not_written() {
        let mut bytes = Vec::new();
        let mut packets = Packets::new(&mut bytes, 5_000);
        let packet = TracePacket { timestamp: Some(1), ..Default::default() };
        (0..CHUNK).for_each(|_| packets.push(&packet));
        assert!(matches!(packets.finish(), Err(ExportError::TooLarge)));
        assert!(bytes.is_empty());
    }
}
