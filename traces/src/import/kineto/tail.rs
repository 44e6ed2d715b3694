//! Fields that stand behind the events, where a tool saved a trace in another order than Kineto's.
//!
//! They say of which rank a trace is and when it began, which is asked before events are read. So the end of the file is
//! looked at: the list of events ends where what follows is the rest of an object, to the last byte.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    sync::Arc,
};

use memchr::memchr_iter;
use serde_json::{Deserializer, value::RawValue};

use super::{
    super::{recognize, unpacked},
    document::place_of,
    header::Header,
};

/// How much of the end is looked at.
const LONGEST: usize = 1 << 20;
/// How much text is read at most to find where the events end.
const MOST_READ: usize = 64 << 20;

/// Takes the fields behind the events, if some may be there. Of the events it is known whether their times need a field that
/// says what they are counted from.
pub(super) fn take_fields(file: &Arc<File>, header: &mut Header, are_dated: bool) -> io::Result<()> {
    if header.is_full() {
        return Ok(());
    }
    let mut end = match recognize::is_packed(file) {
        false => last_bytes(file)?,
        // All of it has to be unpacked for that. Kineto itself has its fields before the events.
        true if !header.is_kineto || !are_dated && header.base_ns == 0 => {
            last_unpacked(unpacked::open(file.clone())?.0)
        }
        true => return Ok(()),
    };
    for (key, value) in fields(&mut end).unwrap_or_default() {
        header.take(&key, &value);
    }
    Ok(())
}

fn last_bytes(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(LONGEST as u64);
    let mut bytes = vec![0; (length - begin) as usize];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}

/// The last bytes; none, where they cannot be unpacked to the end.
fn last_unpacked(mut bytes: impl Read) -> Vec<u8> {
    let mut last = Vec::new();
    loop {
        match (&mut bytes).take(LONGEST as u64).read_to_end(&mut last) {
            Ok(0) => return last,
            Ok(_) => drop(last.drain(..last.len().saturating_sub(LONGEST))),
            Err(_) => return Vec::new(),
        }
    }
}

/// The fields behind the events at the end of a text.
fn fields(text: &mut [u8]) -> Option<BTreeMap<String, Box<RawValue>>> {
    let ends: Vec<usize> = memchr_iter(b']', text).collect();
    let mut read = 0;
    for end in ends {
        let behind = &text[end + 1..];
        let comma = end + 1 + behind.iter().position(|byte| !byte.is_ascii_whitespace())?;
        if text[comma] != b',' || read > MOST_READ {
            continue;
        }
        // With this one byte, the rest of the object is an object.
        text[comma] = b'{';
        let rest = &text[comma..];
        let mut objects = Deserializer::from_slice(rest).into_iter::<BTreeMap<String, Box<RawValue>>>();
        let found = objects.next()?;
        read += found.as_ref().map_or_else(|error| place_of(error, rest), |_| objects.byte_offset());
        let is_last = rest[objects.byte_offset()..].trim_ascii().is_empty();
        text[comma] = b',';
        if let Some(fields) = found.ok().filter(|_| is_last) {
            return Some(fields);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        fields(&mut text.as_bytes().to_vec()).map(|fields| fields.into_keys().collect()).unwrap_or_default()
    }

    #[test]
    fn fields_behind_the_events_are_found() {
        let events = r#"{"ph": "X", "args": {"grid": [1, 2], "block": [3]}}, {"ph": "X", "args": {"a": [], "b": 1}}"#;
        let behind = r#""deviceProperties": [{"id": 0, "x": [1, 2]}, {"id": 1}], "distributedInfo": {"rank": 3}"#;
        let whole = format!("{{\"traceEvents\": [{events}],\n {behind}}}\n");
        assert_eq!(keys(&whole), ["deviceProperties", "distributedInfo"]);
        // Of a long file only the end is there.
        assert_eq!(keys(&whole[20..]), ["deviceProperties", "distributedInfo"]);
        assert_eq!(keys(&whole.replace(r#""distributedInfo""#, "distributedInfo")), [""; 0]);
        assert_eq!(keys(&whole[..whole.len() - 3]), [""; 0]);
        assert_eq!(keys(&format!("{{\"traceEvents\": [{events}]}}")), [""; 0]);
        assert_eq!(keys(""), [""; 0]);
    }

    #[test]
    fn text_without_an_end_comes_to_one() {
        let text = format!("[{}", "],\"a\":[1".repeat(LONGEST / 8));
        assert_eq!(keys(&text), [""; 0]);
    }
}
