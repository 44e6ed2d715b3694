//! JSON in pieces, damaged and hostile.

use proptest::prelude::*;

use super::*;

/// Bytes in pieces of some size.
struct Pieces<'a>(&'a [u8], usize);

impl Supply for Pieces<'_> {
    fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let (piece, rest) = self.0.split_at(self.0.len().min(self.1));
        to.extend_from_slice(piece);
        self.0 = rest;
        Ok(!piece.is_empty())
    }
}

/// Writes down what it is told.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    fields: Vec<String>,
    events: Vec<String>,
}

impl Visit for Notes {
    fn field(&mut self, key: &str, value: &RawValue) {
        self.fields.push(format!("{key}={}", value.get()));
    }

    fn begin(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self.events.push(event.name.to_string());
        ControlFlow::Continue(())
    }
}

fn notes(text: &[u8], piece: usize) -> (Notes, Walked) {
    let mut notes = Notes::default();
    let walked = walk(Pieces(text, piece), &mut notes);
    (notes, walked)
}

fn kernel(name: &str) -> String {
    let arguments = r#"{"grid": [1, -2.5e3, 1], "blocks per SM": 0.25, "note": "a } \" {", "ok": true}"#;
    format!("{{\n  \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"ts\": -1.5, \"args\": {arguments}\n  }}")
}

fn trace(events: &[String]) -> String {
    let events = events.join(",\n  ");
    format!("{{\"schemaVersion\": 1,\n\"base\": -12, \"traceEvents\": [\n  {events}\n  ],\n\"traceName\": \"x\"}}\n")
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn pieces_of_any_size_read_the_same() {
    let text = trace(&["a", "b", "c"].map(kernel));
    let (whole, walked) = notes(text.as_bytes(), usize::MAX);
    assert_eq!(whole.events, names(&["a", "b", "c"]));
    assert_eq!(whole.fields, names(&["schemaVersion=1", "base=-12", "traceName=\"x\""]));
    assert!(walked.is_whole && walked.loss.is_none());
    for piece in 1..60 {
        let (notes, walked) = notes(text.as_bytes(), piece);
        assert_eq!(notes, whole, "{piece}");
        assert!(walked.is_whole && walked.loss.is_none(), "{piece}");
    }
}

#[test]
fn a_damaged_event_costs_itself() {
    for damage in [
        "{\"ph\": \"X\", \"name\": \"torn",
        "{\"ph\": \"X\", \"name\": \"to\nrn\", \"args\": {}}",
        "{\"ph\": \"X\", \"name\": garbage {\"x\": 1}}",
        "{\"name\": \"not an event\"}",
        "17",
        "[{}]",
        "{\"ph\": \"X\", \"name\": \"\\ud800\"}",
    ] {
        let text = trace(&[kernel("a"), damage.to_owned(), kernel("b")]);
        for piece in [7, usize::MAX] {
            let (notes, walked) = notes(text.as_bytes(), piece);
            assert_eq!(notes.events, names(&["a", "b"]), "{damage}");
            let Loss { unreadable_bytes, unreadable_events, .. } = walked.loss;
            assert!((1..=3).contains(&unreadable_events), "{damage}: {unreadable_events}");
            assert!((2..=damage.len() as u64 + 6).contains(&unreadable_bytes), "{damage}: {unreadable_bytes}");
            assert!(walked.is_whole, "{damage}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_cost_their_event() {
    let mut bytes = trace(&["a", "b", "c"].map(kernel)).into_bytes();
    let place = memmem::find(&bytes, b"\"b\"").unwrap() + 1;
    bytes[place] = 0xff;
    let (notes, walked) = notes(&bytes, 64);
    assert_eq!(notes.events, names(&["a", "c"]));
    assert!(walked.loss.unreadable_events >= 1 && walked.loss.unreadable_bytes >= 2);
}

#[test]
fn what_is_no_number_is_no_reason_to_lose_an_event() {
    for word in ["nan", "-nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"] {
        let event = kernel("a").replace("0.25", word).replace("-2.5e3", word);
        let text = trace(&[event, kernel("b")]);
        for piece in [5, usize::MAX] {
            let (notes, walked) = notes(text.as_bytes(), piece);
            assert_eq!(notes.events, names(&["a", "b"]), "{word}");
            assert!(walked.loss.is_none(), "{word}");
        }
    }
}

#[test]
fn nothing_but_damage_is_not_gone_through() {
    let mut text = trace(&[kernel("a"), "{?".repeat(MOST_DAMAGE as usize), kernel("b")]).into_bytes();
    text.extend([b' '; 100]);
    let (notes, walked) = notes(&text, 1 << 20);
    assert_eq!((notes.events, walked.is_whole), (names(&["a"]), false));
    assert_eq!(walked.loss.unreadable_events, MOST_DAMAGE);
    let before = memmem::find(&text, b"{?").unwrap() as u64;
    assert_eq!(walked.loss.unreadable_bytes, text.len() as u64 - before);
}

#[test]
fn what_is_cut_off_is_read_as_far_as_it_goes() {
    let text = trace(&["a", "b"].map(kernel));
    let second = text.rfind("{\n").unwrap();
    for end in 0..text.trim_end().len() {
        let (notes, walked) = notes(&text.as_bytes()[..end], 16);
        assert!(!walked.is_whole, "{end}");
        if end == second + 20 {
            assert_eq!(notes.events, names(&["a"]));
            assert_eq!(walked.loss, Loss { unreadable_bytes: 20, unreadable_events: 1, dropped_events: 0 });
        }
    }
}

#[test]
fn a_damaged_head_does_not_hide_the_events() {
    let text = trace(&[kernel("a")]).replace("\"base\": -12", "\"base\": ?, ,]");
    let (notes, walked) = notes(text.as_bytes(), 9);
    assert_eq!(notes.events, names(&["a"]));
    assert!(walked.is_whole && walked.loss.unreadable_bytes > 0);
}

#[test]
fn other_things_are_known_for_what_they_are() {
    for (text, instead) in [
        ("", Instead::Nothing),
        (" \n ", Instead::Nothing),
        ("{}", Instead::Object),
        ("{\"traceEvents\": 7}", Instead::Object),
        ("some text", Instead::Bytes),
        ("{some text", Instead::Bytes),
    ] {
        assert_eq!(notes(text.as_bytes(), 4).1.instead, Some(instead), "{text}");
    }
    assert_eq!(notes(b"\xef\xbb\xbf{\"traceEvents\": []}", 1).1.instead, None);
}

#[test]
fn a_list_of_events_alone_is_read() {
    let text = format!(" [\n{}\n]\n", [kernel("a"), kernel("b")].join(","));
    for piece in [1, 7, usize::MAX] {
        let (read, walked) = notes(text.as_bytes(), piece);
        assert_eq!((read.events, walked.is_list, walked.is_whole), (names(&["a", "b"]), true, true));
        assert!(walked.loss.is_none());
    }
    let cut = &text[..text.len() - 3];
    let (read, walked) = notes(cut.as_bytes(), 7);
    assert_eq!((read.events, walked.is_whole), (names(&["a", "b"]), false));
}

#[test]
fn nesting_is_skipped_however_deep_it_is() {
    for depth in [100, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let (read, walked) = notes(trace(&[kernel("a").replace("true", &nested), kernel("b")]).as_bytes(), 64);
        assert_eq!((read.events, walked.loss.is_none()), (names(&["a", "b"]), true));
        let open = "{\"ph\":".repeat(depth);
        let (read, walked) = notes(trace(&[kernel("a"), open, kernel("b")]).as_bytes(), 64);
        assert_eq!((read.events, walked.loss.unreadable_events > 0), (names(&["a", "b"]), true));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..50_usize) {
        notes(&bytes, piece);
    }

    #[test]
    fn damage_anywhere_leaves_most_events(
        place in 0..2000_usize, bytes in prop::collection::vec(any::<u8>(), 1..12), piece in 20..500_usize,
    ) {
        let events: Vec<String> = (0..12).map(|event| kernel(&event.to_string())).collect();
        let mut text = trace(&events).into_bytes();
        let begin = memmem::find(&text, b"[\n").unwrap() + 2;
        let place = begin + place % (text.len() - begin - bytes.len());
        text[place..place + bytes.len()].copy_from_slice(&bytes);
        let (read, walked) = notes(&text, piece);
        prop_assert!(read.events.len() == events.len() || !walked.loss.is_none());
        // Damage of twelve bytes touches two events, unless it ends the list before its end.
        prop_assert!(read.events.len() + 3 >= events.len() || !walked.is_whole);
    }
}
