//! JSON for programs, which a terminal may show, too.

use serde::Serialize;
use stepscope_plan::text::misleads;

/// A value as JSON, on lines. What could pass for something else on a terminal is written by its number, which means the
/// same: such characters stand in strings alone.
pub(crate) fn written(value: &impl Serialize) -> serde_json::Result<String> {
    let plain = serde_json::to_string_pretty(value)?;
    let mut json = String::with_capacity(plain.len() + 1);
    for c in plain.chars() {
        if c != '\n' && misleads(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| json += &format!("\\u{unit:04x}"));
        } else {
            json.push(c);
        }
    }
    json.push('\n');
    Ok(json)
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
