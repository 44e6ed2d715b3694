//! Spans in as few bytes as a page can read: numbers of variable length, deflated, in letters.

use std::io::{Result, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::DeflateEncoder};

/// A span as it is drawn: when, of which of the page's kinds, and how many it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) kind: usize,
    pub(super) count: u32,
}

/// The spans of lanes, one lane after the other and each by time.
pub(super) fn packed<'a>(lanes: impl Iterator<Item = &'a [Drawn]>) -> Result<String> {
    let mut bytes = Vec::new();
    for lane in lanes {
        let mut last = 0;
        for span in lane {
            let numbers = [span.start - last, span.end - span.start, span.kind as i64, i64::from(span.count) - 1];
            last = span.start;
            numbers.into_iter().for_each(|number| write_number(number.max(0) as u64, &mut bytes));
        }
    }
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::default());
    deflated.write_all(&bytes)?;
    Ok(STANDARD.encode(deflated.finish()?))
}

/// Seven bits to a byte, the lowest first; the highest bit says that there are more.
fn write_number(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;

    #[test]
    fn numbers_are_as_protobuf_writes_them() {
        let lanes =
            [vec![Drawn { start: 0, end: 300, kind: 1, count: 1 }, Drawn { start: 310, end: 311, kind: 0, count: 3 }]];
        let text = packed(lanes.iter().map(Vec::as_slice)).unwrap();
        let mut bytes = Vec::new();
        DeflateDecoder::new(STANDARD.decode(text).unwrap().as_slice()).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [0, 0xac, 2, 1, 0, 0xb6, 2, 1, 0, 2]);
    }
}
