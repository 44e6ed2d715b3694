//! JSON for programs, which a terminal may show, too.

use std::{
    io::{self, Write},
    str,
};

use serde::Serialize;
use stepscope_plan::text::misleads;

/// A value as JSON, on lines. What could pass for something else on a terminal is written by its number, which means the
/// same: such characters stand in strings alone.
pub(crate) fn written(value: &impl Serialize) -> io::Result<String> {
    let mut json = Vec::new();
    write(value, &mut json)?;
    String::from_utf8(json).map_err(io::Error::other)
}

/// Writes the same as it is made: the steps of a large job are more than anybody wants in memory twice.
pub(crate) fn write(value: &impl Serialize, to: &mut dyn Write) -> io::Result<()> {
    let mut numbering = Numbering(to);
    serde_json::to_writer_pretty(&mut numbering, value)?;
    numbering.0.write_all(b"\n")
}

/// Writes what misleads by its number. It is given whole characters.
struct Numbering<'a>(&'a mut dyn Write);

impl Write for Numbering<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
        if bytes.iter().all(is_plain) {
            self.0.write_all(bytes)?;
            return Ok(bytes.len());
        }
        for c in str::from_utf8(bytes).map_err(io::Error::other)?.chars() {
            if c != '\n' && misleads(c) {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))?;
            } else {
                self.0.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_takes_nothing_for_more_than_text_and_programs_read_it_all() {
        let names =
            ["a\u{1b}[31m\u{9b}\u{7f}", "b\u{202e}\u{200b}\u{feff}\n\t", "c\u{e0041}\u{1f600} é"].map(str::to_owned);
        let json = written(&names).unwrap();
        assert!(!json.contains(|c: char| c != '\n' && misleads(c)), "{json}");
        assert_eq!(serde_json::from_str::<[String; 3]>(&json).unwrap(), names);
    }
}
