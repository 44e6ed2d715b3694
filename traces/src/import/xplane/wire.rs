//! The fields of a protobuf message, one after another, as far as they can be read.

use prost::{
    bytes::Buf,
    encoding::{WireType, decode_key, decode_varint},
};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    /// A number.
    Number(u64),
    /// A text, some bytes, or another message.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes.
    Fixed,
}

/// Goes over the fields of a message.
///
/// At damage it ends: nothing behind tells where the next field begins. A value that goes on behind the end of the message
/// is given as far as it is there.
#[derive(Clone, Debug)]
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
    /// How many bytes could not be read.
    pub(super) lost: u64,
    /// Whether the last value is cut off.
    pub(super) is_cut: bool,
}

impl<'a> WireFields<'a> {
    pub(super) fn of(message: &'a [u8]) -> WireFields<'a> {
        WireFields { rest: message, lost: 0, is_cut: false }
    }

    fn field(&mut self) -> Option<(u32, FieldValue<'a>)> {
        let (number, wire) = decode_key(&mut self.rest).ok()?;
        let value = match wire {
            WireType::Varint => FieldValue::Number(decode_varint(&mut self.rest).ok()?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest).ok()?;
                self.is_cut = length > self.rest.len() as u64;
                let (value, rest) = self.rest.split_at(self.rest.len().min(length as usize));
                self.rest = rest;
                FieldValue::Bytes(value)
            }
            WireType::SixtyFourBit | WireType::ThirtyTwoBit => {
                let length = if wire == WireType::SixtyFourBit { 8 } else { 4 };
                self.is_cut = length > self.rest.len();
                self.rest.advance(length.min(self.rest.len()));
                FieldValue::Fixed
            }
            // Messages that we read have none of these.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some((number, value))
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = (u32, FieldValue<'a>);

    fn next(&mut self) -> Option<(u32, FieldValue<'a>)> {
        if self.rest.is_empty() {
            return None;
        }
        let before = self.rest.len();
        let field = self.field();
        if field.is_none() {
            self.lost = before as u64;
            self.rest = &[];
        }
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_up_to_damage() {
        let message = [8, 150, 1, 18, 2, b'a', b'b', 13, 0, 0, 0, 0];
        let all: Vec<_> = WireFields::of(&message).collect();
        assert_eq!(all, [(1, FieldValue::Number(150)), (2, FieldValue::Bytes(b"ab")), (1, FieldValue::Fixed)]);
        let mut cut = WireFields::of(&message[..6]);
        assert_eq!(cut.by_ref().last(), Some((2, FieldValue::Bytes(b"a"))));
        assert!(cut.is_cut && cut.lost == 0);
        let mut damaged = WireFields::of(&[8, 1, 0xff, 0xff, 7]);
        assert_eq!(damaged.by_ref().count(), 1);
        assert_eq!(damaged.lost, 3);
    }
}
