//! Tells profiles of XLA from other protobuf files, which begin with the same bytes.

use super::wire::{FieldValue, WireFields};

/// No plane has a longer name.
const LONGEST_NAME: usize = 4096;

/// What a protobuf file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protobuf {
    /// A profile of XLA's.
    XSpace,
    /// A trace of Perfetto's.
    Perfetto,
}

/// What a file is that begins so, if it may be one of these. Both are lists of messages; those of a profile are planes, which
/// have names, and those of Perfetto are packets, which have none.
pub(crate) fn kind_of_protobuf(head: &[u8]) -> Option<Protobuf> {
    let mut messages = WireFields::of(head);
    let (1, FieldValue::Bytes(first)) = messages.next()? else { return None };
    if is_plane(first) {
        return Some(Protobuf::XSpace);
    }
    let is_packet = !first.is_empty() && (messages.is_cut || is_readable(first));
    let has_more = messages.is_cut || messages.next().is_some_and(|(number, _)| number == 1);
    (is_packet && has_more && is_readable_start(first)).then_some(Protobuf::Perfetto)
}

/// Whether a message, of which the end may be missing, has the fields of a plane and a name.
fn is_plane(message: &[u8]) -> bool {
    let mut is_named = false;
    for (number, value) in WireFields::of(message) {
        match (number, value) {
            (1, FieldValue::Number(_)) | (3..=6, FieldValue::Bytes(_)) => {}
            (2, FieldValue::Bytes(name)) => {
                let text = std::str::from_utf8(name).unwrap_or_default();
                is_named = (1..=LONGEST_NAME).contains(&text.len()) && !text.contains(char::is_control);
                if !is_named {
                    return false;
                }
            }
            _ => return false,
        }
    }
    is_named
}

fn is_readable(message: &[u8]) -> bool {
    let mut fields = WireFields::of(message);
    fields.by_ref().for_each(drop);
    fields.lost == 0 && !fields.is_cut
}

/// Whether a packet begins with fields that packets have.
fn is_readable_start(message: &[u8]) -> bool {
    WireFields::of(message).next().is_some_and(|(number, _)| (1..1000).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_told_from_traces() {
        let plane = [b"\x0a\x0e\x12\x09/host:CPU".as_slice(), &[0x1a, 1, 0]].concat();
        assert_eq!(kind_of_protobuf(&plane), Some(Protobuf::XSpace));
        assert_eq!(kind_of_protobuf(&plane[..13]), Some(Protobuf::XSpace), "cut behind the name");
        let packets = [0x0a, 4, 0x40, 7, 0x50, 1, 0x0a, 2, 0x40, 9];
        assert_eq!(kind_of_protobuf(&packets), Some(Protobuf::Perfetto));
        for other in [&b""[..], b"\n", b"\n\n\n", b"{\"a\": 1}", &[0x0a, 0xff, 0xff], &[0x0a, 2, 0xff, 0xff]] {
            assert_eq!(kind_of_protobuf(other), None, "{other:?}");
        }
    }
}
