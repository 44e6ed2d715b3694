//! An event on a track as bytes, laid out while it is told: most of a trace is made of these.

use prost::{
    Message,
    encoding::{encode_varint, encoded_len_varint},
};

use super::{
    labels::{Argument, Tags},
    schema::{DebugAnnotation, EventType},
};
use crate::{
    ids::NameId,
    vocabulary::{Phase, SpanKind},
};

/// What begins the fields of [`super::schema::TrackEvent`]: number and type of each.
const CATEGORY: u8 = 3 << 3;
const ANNOTATION: u8 = (4 << 3) | 2;
const TYPE: u8 = 9 << 3;
const NAME: u8 = 10 << 3;
const FLOW: u64 = 36 << 3;

/// What begins the fields of [`super::schema::DebugAnnotation`].
const ARGUMENT: u8 = 1 << 3;
const UNSIGNED: u8 = 3 << 3;
const SIGNED: u8 = 4 << 3;
const DOUBLE: u8 = (5 << 3) | 1;
const TEXT: u64 = 17 << 3;

/// What ends a slice: its type, and nothing else.
pub(super) const END: [u8; 2] = [TYPE, EventType::SliceEnd as u8];

/// The beginning of a slice.
#[derive(Default)]
pub(super) struct Event {
    bytes: Vec<u8>,
    flows: u64,
    tags: Option<Tags>,
    origin: Option<NameId>,
}

impl Event {
    /// Begins anew.
    pub(super) fn begin(&mut self, tags: Option<Tags>) {
        self.bytes.clear();
        self.flows = 0;
        self.tags = tags;
        self.origin = None;
        self.bytes.extend([TYPE, EventType::SliceBegin as u8]);
    }

    /// Its category.
    pub(super) fn tags(&self) -> Option<Tags> {
        self.tags
    }

    /// Who launched it; what that says is known where it is written.
    pub(super) fn origin(&self) -> Option<NameId> {
        self.origin
    }

    /// Says who launched it.
    pub(super) fn launched_by(&mut self, origin: NameId) {
        self.origin = Some(origin);
    }

    /// Adds an argument with a number that counts something.
    pub(super) fn count(&mut self, argument: Argument, value: u64) {
        self.argument(argument, 1 + encoded_len_varint(value));
        self.bytes.push(UNSIGNED);
        encode_varint(value, &mut self.bytes);
    }

    /// Adds an argument with a number that may be below zero.
    pub(super) fn number(&mut self, argument: Argument, value: i32) {
        let value = i64::from(value).cast_unsigned();
        self.argument(argument, 1 + encoded_len_varint(value));
        self.bytes.push(SIGNED);
        encode_varint(value, &mut self.bytes);
    }

    /// Adds an argument with a rate.
    pub(super) fn rate(&mut self, argument: Argument, value: f64) {
        self.argument(argument, 1 + size_of::<f64>());
        self.bytes.push(DOUBLE);
        self.bytes.extend(value.to_le_bytes());
    }

    /// Adds a phase.
    pub(super) fn phase(&mut self, phase: Phase) {
        self.text(Argument::Phase, Argument::text_of_phase(phase));
    }

    /// Adds an operation.
    pub(super) fn operation(&mut self, kind: SpanKind) {
        self.text(Argument::Operation, Argument::text_of_kind(kind));
    }

    /// Adds an argument with a text that its sequence has by this number.
    pub(super) fn text(&mut self, argument: Argument, number: u64) {
        self.argument(argument, encoded_len_varint(TEXT) + encoded_len_varint(number));
        encode_varint(TEXT, &mut self.bytes);
        encode_varint(number, &mut self.bytes);
    }

    /// Begins an argument whose value takes this many bytes.
    fn argument(&mut self, argument: Argument, value: usize) {
        // Neither has so many that a byte would not do.
        self.bytes.extend([ANNOTATION, (2 + value) as u8, ARGUMENT, argument.number() as u8]);
    }

    /// Adds an argument that is named where it stands: of those there are few.
    pub(super) fn named_argument(&mut self, argument: &DebugAnnotation) {
        self.bytes.push(ANNOTATION);
        self.bytes.extend(argument.encode_length_delimited_to_vec());
    }

    /// Ties it to others by a flow.
    pub(super) fn flow(&mut self, flow: u64) {
        encode_varint(FLOW, &mut self.bytes);
        encode_varint(flow, &mut self.bytes);
        self.flows += 1;
    }

    /// How many flows it is tied to.
    pub(super) fn flows(&self) -> u64 {
        self.flows
    }

    /// All of it, with its name and its category, which have numbers in its sequence.
    pub(super) fn named(&mut self, name: u64, category: Option<u64>) -> &[u8] {
        if let Some(category) = category {
            self.bytes.push(CATEGORY);
            encode_varint(category, &mut self.bytes);
        }
        self.bytes.push(NAME);
        encode_varint(name, &mut self.bytes);
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::perfetto::schema::{TrackEvent, Value};

    #[test]
    fn what_is_laid_out_by_hand_is_what_the_schema_says() {
        let mut event = Event::default();
        event.begin(None);
        event.begin(Some(Tags::of(SpanKind::Kernel)));
        assert_eq!(event.tags(), Some(Tags::of(SpanKind::Kernel)));
        event.count(Argument::Flops, u64::MAX);
        event.number(Argument::Layer, -1);
        event.rate(Argument::TeraFlops, 989.5);
        event.phase(Phase::Backward);
        event.operation(SpanKind::Launch);
        let named =
            DebugAnnotation { name_iid: None, name: Some("try".into()), value: Some(Value::Text("x".repeat(300))) };
        event.named_argument(&named);
        event.flow(300);
        event.flow(u64::MAX);
        assert_eq!(event.flows(), 2);
        let annotation = |argument: Argument, value| DebugAnnotation {
            name_iid: Some(argument.number()),
            name: None,
            value: Some(value),
        };
        let expected = TrackEvent {
            category_iids: vec![200],
            debug_annotations: vec![
                annotation(Argument::Flops, Value::Unsigned(u64::MAX)),
                annotation(Argument::Layer, Value::Signed(-1)),
                annotation(Argument::TeraFlops, Value::Double(989.5)),
                annotation(Argument::Phase, Value::TextIid(Argument::text_of_phase(Phase::Backward))),
                annotation(Argument::Operation, Value::TextIid(Argument::text_of_kind(SpanKind::Launch))),
                named.clone(),
            ],
            r#type: Some(EventType::SliceBegin as i32),
            name_iid: Some(1_000_000),
            flow_ids_old: vec![300, u64::MAX],
            ..Default::default()
        };
        assert_eq!(TrackEvent::decode(event.named(1_000_000, Some(200))).unwrap(), expected);
        let end = TrackEvent { r#type: Some(EventType::SliceEnd as i32), ..Default::default() };
        assert_eq!(TrackEvent::decode(END.as_slice()).unwrap(), end);
    }
}
