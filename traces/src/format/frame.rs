//! One message with its checksums.

use arrow_ipc::{Message, root_as_message};

/// What every message begins with.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
const PREFIX: usize = 8;
const CHECKSUMS: usize = 8;
/// What a reader accepts; the heads that are written are a tenth of it.
const MAX_HEAD: usize = 32 << 10;
/// What a reader accepts; a writer cuts its batches far below.
pub(crate) const MAX_BODY: usize = 16 << 20;

/// Ends an Arrow stream.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Rounds up to the alignment of everything in a stream.
pub(crate) fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// Appends a whole message: prefix, flatbuffer, checksums, body. The body is already padded.
pub(crate) fn seal(flatbuffer: &[u8], body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let head_length = padded(flatbuffer.len()) + CHECKSUMS;
    out.extend_from_slice(&CONTINUATION);
    out.extend_from_slice(&(head_length as i32).to_le_bytes());
    out.extend_from_slice(flatbuffer);
    out.resize(start + PREFIX + head_length - CHECKSUMS, 0);
    let body_checksum = crc32fast::hash(body).to_le_bytes();
    let head_checksum = head_checksum(&out[start..], body_checksum);
    out.extend_from_slice(&head_checksum);
    out.extend_from_slice(&body_checksum);
    out.extend_from_slice(body);
}

fn head_checksum(prefix_and_flatbuffer: &[u8], body_checksum: [u8; 4]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(prefix_and_flatbuffer);
    hasher.update(&body_checksum);
    hasher.finalize().to_le_bytes()
}

/// What stands at the beginning of some bytes.
pub(crate) enum Frame<'a> {
    /// A message. The body is `None` when it fails its checksum.
    Message { message: Message<'a>, body: Option<&'a [u8]>, length: usize },
    /// The end of the stream, which takes eight bytes.
    EndOfStream,
    /// The beginning of something that may be a message once more bytes are there.
    Unfinished,
    /// No message.
    Garbage,
}

impl<'a> Frame<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Frame<'a> {
        let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Frame::Unfinished };
        if *prefix == END_OF_STREAM {
            return Frame::EndOfStream;
        }
        let [c0, c1, c2, c3, l0, l1, l2, l3] = *prefix;
        let head_length = i32::from_le_bytes([l0, l1, l2, l3]);
        let head_length = match usize::try_from(head_length) {
            Ok(length)
                if [c0, c1, c2, c3] == CONTINUATION
                    && (2 * CHECKSUMS..=MAX_HEAD).contains(&length)
                    && length.is_multiple_of(8) =>
            {
                length
            }
            _ => return Frame::Garbage,
        };
        let Some((head, rest)) = bytes.split_at_checked(PREFIX + head_length) else { return Frame::Unfinished };
        let (covered, checksums) = head.split_at(head.len() - CHECKSUMS);
        let Some((expected_head, &[b0, b1, b2, b3])) = checksums.split_at_checked(4) else { return Frame::Garbage };
        let body_checksum = [b0, b1, b2, b3];
        // Flatbuffer first: it refuses noise at once, so that noise made of prefixes is not hashed over and over.
        let Ok(message) = root_as_message(&covered[PREFIX..]) else { return Frame::Garbage };
        if head_checksum(covered, body_checksum) != expected_head {
            return Frame::Garbage;
        }
        let body_length = match usize::try_from(message.bodyLength()) {
            Ok(length) if length <= MAX_BODY && length.is_multiple_of(8) => length,
            _ => return Frame::Garbage,
        };
        let Some(body) = rest.get(..body_length) else { return Frame::Unfinished };
        let intact = crc32fast::hash(body).to_le_bytes() == body_checksum;
        Frame::Message { message, body: intact.then_some(body), length: head.len() + body_length }
    }
}
