//! Reads plain events: texts without escapes, and no object but that of the arguments.
//!
//! Nearly every event is one. Its values are found and not looked at, which takes a third of the time that it takes to
//! parse them. Whatever looks different is none, and is read as any JSON is.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use memchr::{memchr_iter, memchr3, memrchr};
use serde_json::value::RawValue;

use super::event::{Arguments, Event, TraceEventType, number};

/// The event at the beginning of a text if it is a plain one, and how long it is.
pub(super) fn plain_event<'a>(text: &'a str) -> Option<(Event<'a>, usize)> {
    let head = laid_out_head(text);
    let is_begun = head.is_some();
    let (mut event, at) = head.unwrap_or_default();
    let mut cursor = Cursor { text, at, field: 0 };
    let field = |cursor: &mut Cursor<'a>, key: &'a str| {
        match key {
            "ph" => event.mark = Some(TraceEventType::of(cursor.string()?)),
            "cat" => event.set_category(Cow::Borrowed(cursor.string()?)),
            "name" => event.name = Cow::Borrowed(cursor.string()?),
            "pid" => event.process = Some(cursor.value()?),
            "tid" => event.thread = Some(cursor.value()?),
            "ts" => event.time = Some(cursor.value()?),
            "dur" => event.duration = Some(cursor.value()?),
            // Whose arguments these are is not known yet.
            "args" if !is_told(&event) => return None,
            "args" if event.keeps_arguments() => event.whole_arguments = Some(cursor.object()?),
            "args" => event.arguments = Some(cursor.arguments()?),
            _ => _ = cursor.value()?,
        }
        Some(())
    };
    if is_begun { cursor.more_fields(field) } else { cursor.fields(field) }?;
    Some((event, cursor.at))
}

/// What stands before the arguments, where Kineto itself laid it out, and how long that is. Comparing all that is the same
/// in each event takes half the time that it takes to look for its keys.
fn laid_out_head(text: &str) -> Option<(Event<'_>, usize)> {
    let mut cursor = Cursor { text, at: 0, field: 0 };
    let mut event = Event::default();
    if cursor.passes("{\n    \"ph\": \"X\", \"cat\": ") {
        event.mark = Some(TraceEventType::Complete);
        event.set_category(Cow::Borrowed(cursor.string()?));
        cursor.passes(", \"name\": ").then_some(())?;
        event.name = Cow::Borrowed(cursor.string()?);
        cursor.passes(", \"pid\": ").then_some(())?;
    } else {
        cursor.passes("{\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": ").then_some(())?;
        event.mark = Some(TraceEventType::Instant);
        event.set_category(Cow::Borrowed("cpu_instant_event"));
        event.name = Cow::Borrowed(cursor.string()?);
        cursor.passes(",\n    \"pid\": ").then_some(())?;
    }
    event.process = Some(cursor.number()?);
    cursor.passes(", \"tid\": ").then_some(())?;
    event.thread = Some(cursor.number()?);
    cursor.passes(",\n    \"ts\": ").then_some(())?;
    event.time = Some(cursor.number()?);
    if cursor.passes(", \"dur\": ") {
        event.duration = Some(cursor.number()?);
    }
    cursor.passes(",\n    ").then_some((event, cursor.at))
}

/// Whether it is known what an event is.
fn is_told(event: &Event<'_>) -> bool {
    match event.mark {
        None => false,
        Some(TraceEventType::Complete) => event.category.is_some() && !event.name.is_empty(),
        Some(_) => true,
    }
}

/// What an operator says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OperatorArguments<'a> {
    /// Its own number.
    pub(super) external: Option<u64>,
    /// The node of autograd's graph that it creates, or runs.
    pub(super) node: Option<u64>,
    /// The thread that created that node, of an operator that runs it.
    pub(super) forward_thread: Option<u32>,
    /// What it is given, in the words of the trace: the same for all that are given the same.
    pub(super) given: &'a str,
}

impl<'a> OperatorArguments<'a> {
    /// Those of a text.
    pub(super) fn of(text: &'a str) -> OperatorArguments<'a> {
        OperatorArguments::plain(text).unwrap_or_else(|| OperatorArguments::parsed(text))
    }

    /// Those of a plain text. What is given are lists, one behind the other.
    fn plain(text: &'a str) -> Option<OperatorArguments<'a>> {
        let mut arguments = OperatorArguments::default();
        let mut lists: Option<Range<usize>> = None;
        let mut stopped = false;
        let mut cursor = Cursor { text, at: 0, field: 0 };
        let walked = cursor.fields(|cursor, key| {
            if cursor.byte()? == b'[' {
                let begin = lists.as_ref().map_or(cursor.field, |lists| lists.start);
                if let Some(end) = end_of_lists(text, begin) {
                    lists = Some(begin..end);
                    stopped = true;
                    return None;
                }
                cursor.skip_array()?;
                lists = Some(begin..cursor.at);
                return Some(());
            }
            arguments.take(key, cursor.value()?);
            Some(())
        });
        arguments.given = lists.map_or("", |lists| &text[lists]);
        (stopped || walked.is_some()).then_some(arguments)
    }

    /// Those of any text.
    fn parsed(text: &'a str) -> OperatorArguments<'a> {
        let mut arguments = OperatorArguments::default();
        for (key, value) in serde_json::from_str::<BTreeMap<String, &RawValue>>(text).unwrap_or_default() {
            arguments.take(&key, value.get());
            arguments.given = text.trim_start_matches('{').trim_end_matches('}');
        }
        arguments
    }

    fn take(&mut self, key: &str, value: &str) {
        match key {
            "External id" => self.external = number(Some(value)),
            "Sequence number" => self.node = number(Some(value)),
            "Fwd thread id" => self.forward_thread = number(Some(value)).filter(|thread| *thread > 0),
            _ => {}
        }
    }
}

/// Where lists end that are all there is from `begin` on, but for the number which newer versions write last, and which is
/// another one each time.
fn end_of_lists(text: &str, begin: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let end = memrchr(b',', bytes).filter(|comma| *comma > begin && text[*comma..].starts_with(", \"Ev Idx\""))?;
    let is_list = |colon: usize| bytes[colon - 1] != b'"' || bytes[colon + 1..].starts_with(b" [");
    memchr_iter(b':', &bytes[begin..end]).all(|colon| is_list(begin + colon)).then_some(end)
}

/// A place in a text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Where the field begins that it is in.
    field: usize,
}

impl<'a> Cursor<'a> {
    /// Goes over an object, from its first brace to behind its last.
    fn fields(&mut self, field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        self.skip_spaces();
        if self.expect(b'}').is_some() {
            return Some(());
        }
        self.more_fields(field)
    }

    /// Goes over an object from the beginning of one of its fields on.
    fn more_fields(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        loop {
            self.skip_spaces();
            self.field = self.at;
            let key = self.key()?;
            self.skip_spaces();
            self.expect(b':')?;
            self.skip_spaces();
            field(self, key)?;
            self.skip_spaces();
            if self.expect(b',').is_none() {
                return self.expect(b'}');
            }
        }
    }

    fn arguments(&mut self) -> Option<Box<Arguments<'a>>> {
        let mut arguments = Box::new(Arguments::NONE);
        self.fields(|cursor, key| {
            let value = cursor.value()?;
            if let Some(argument) = arguments.named(key) {
                *argument = Some(value);
            }
            Some(())
        })?;
        Some(arguments)
    }

    /// The text of an object. Kineto indents what is in one; no text has a line break in it, so the first line that is
    /// indented less is its end.
    fn object(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let rest = &self.text[begin..];
        if !rest.starts_with("{\n      ") {
            self.fields(|cursor, _| cursor.value().map(drop))?;
            return Some(&self.text[begin..self.at]);
        }
        let ends = |line: usize| !rest[line + 1..].starts_with("      ");
        let last = memchr_iter(b'\n', rest.as_bytes()).find(|line| ends(*line))?;
        self.at += last + 1;
        self.skip_spaces();
        self.expect(b'}')?;
        Some(&self.text[begin..self.at])
    }

    /// The text of a value that is no object.
    fn value(&mut self) -> Option<&'a str> {
        let begin = self.at;
        match self.byte()? {
            b'"' => _ = self.string()?,
            b'[' => self.skip_array()?,
            b'n' | b't' | b'f' => {
                let rest = &self.text[begin..];
                let word = ["null", "true", "false"].into_iter().find(|word| rest.starts_with(word))?;
                self.at += word.len();
                self.ends_value()?;
            }
            _ => self.skip_number()?,
        }
        Some(&self.text[begin..self.at])
    }

    /// The text of a number.
    fn number(&mut self) -> Option<&'a str> {
        let begin = self.at;
        self.skip_number()?;
        Some(&self.text[begin..self.at])
    }

    /// Goes behind a number as Kineto writes them.
    fn skip_number(&mut self) -> Option<()> {
        if self.byte()? == b'-' {
            self.at += 1;
        }
        self.skip_digits()?;
        if self.byte()? == b'.' {
            self.at += 1;
            self.skip_digits()?;
        }
        self.ends_value()
    }

    fn skip_digits(&mut self) -> Option<()> {
        let begin = self.at;
        while self.byte()?.is_ascii_digit() {
            self.at += 1;
        }
        (self.at > begin).then_some(())
    }

    fn ends_value(&self) -> Option<()> {
        matches!(self.byte()?, b',' | b'}' | b'\n' | b' ').then_some(())
    }

    /// The key of a field. They are short, so that looking at each letter is fastest.
    fn key(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let begin = self.at;
        loop {
            match self.byte()? {
                b'"' => break,
                b'\\' | b'\n' => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(&self.text[begin..self.at - 1])
    }

    /// What stands between quotation marks.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let begin = self.at;
        let length = memchr3(b'"', b'\\', b'\n', &self.text.as_bytes()[begin..])?;
        self.at += length;
        self.expect(b'"')?;
        Some(&self.text[begin..begin + length])
    }

    fn skip_array(&mut self) -> Option<()> {
        let (mut depth, mut is_text) = (0_u32, false);
        for byte in &self.text.as_bytes()[self.at..] {
            self.at += 1;
            match byte {
                b'\\' | b'{' | b'}' => return None,
                b'"' => is_text = !is_text,
                b'[' => depth += u32::from(!is_text),
                b']' => depth -= u32::from(!is_text),
                _ => {}
            }
            if depth == 0 {
                return Some(());
            }
        }
        None
    }

    fn skip_spaces(&mut self) {
        while self.byte().is_some_and(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Goes behind a text if it stands here; says whether it does.
    #[inline(always)]
    fn passes(&mut self, text: &str) -> bool {
        let is_here = self.text.as_bytes()[self.at..].starts_with(text.as_bytes());
        self.at += if is_here { text.len() } else { 0 };
        is_here
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events of all kinds, as different versions lay them out.
    const EVENTS: [&str; 7] = [
        "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 5, \"tid\": 7,\n    \"ts\": 81617193703.898, \
         \"dur\": 159.408,\n    \"args\": {\n      \"External id\": 9,\"Sequence number\": 4, \"Concrete Inputs\": [\"\", \
         \"[2, 3]\", \"\"], \"Input type\": [\"float\", \"long int\"], \"Input Dims\": [[8, 32], [8], []], \"Ev Idx\": 2\n    }\n  }",
        r#"{"ph":"X","cat":"kernel","name":"k<1>","pid":0,"tid":7,"ts":1.5,"dur":2,"args":{"correlation":3,"grid":[1,2,3]}}"#,
        r#"{"ph":"i","args":{},"dur":-0.25,"ts":10,"tid":"main","name":"","id":null,"bp":true}"#,
        r#"{ "ph" : "i" , "name" : "[memory]" , "ts" : 12.000 , "args" : { "Addr" : 139 , "Bytes" : -512 } }"#,
        "{\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\",\n    \"pid\": 5, \"tid\": 7,\n    \
         \"ts\": 81617193703.898,\n    \"args\": {\n      \"Addr\": 139, \"Bytes\": -512\n    }\n  }",
        "{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 5, \"tid\": 7,\n    \
         \"ts\": 81617193703.898, \"dur\": 3\n  }",
        r#"{"ph":"M","name":"thread_name","args":{"name":"ä]\"}"#,
    ];

    /// What is read of an event, if it is of use.
    fn told((event, bytes): (Event<'_>, usize)) -> String {
        format!("{:?} {bytes}", event.meaning().map(|meaning| (meaning, event)))
    }

    fn parsed(text: &str) -> Option<String> {
        let mut events = serde_json::Deserializer::from_str(text).into_iter::<Event<'_>>();
        let event = events.next()?.ok()?;
        Some(told((event, events.byte_offset())))
    }

    #[test]
    fn plain_events_are_what_parsing_says() {
        for text in &EVENTS[..6] {
            let text = format!("{text},\n  {{");
            assert_eq!(plain_event(&text).map(told), parsed(&text));
            assert!(plain_event(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        for text in [
            "",
            "[]",
            r#"{"ph": "X""#,
            r#"{"ph": "X", "name": "a\"b"}"#,
            r#"{"ph": "X", "cat": "kernel", "name": "k", "args": null}"#,
            r#"{"args": {}, "ph": "X", "cat": "cpu_op", "name": "aten::mm"}"#,
            r#"{"ph": "X", "cat": "kernel", "name": "k", "args": {"more": {"deep": 1}}}"#,
            r#"{"ph": "X", "ts": nan}"#,
            r#"{"ph": "X", "ts": 1e5}"#,
            r#"{"ph": "X", "ts": 1.2.3}"#,
            r#"{"ph": "X",}"#,
            "{\"ph\": \"X\", \"name\": \"its end is miss\n  \"}",
        ] {
            assert!(plain_event(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_an_operator_is_given_is_the_same_each_time() {
        let given = r#""Input type": ["float", "Scalar"], "Input Dims": [[8, 32], []]"#;
        for (text, external, node, forward_thread) in [
            (
                format!(r#"{{"External id": 9,"Sequence number": 4, "Fwd thread id": 1, {given}, "Ev Idx": 2}}"#),
                9,
                4,
                Some(1),
            ),
            (
                format!(r#"{{"External id": 9, "Ev Idx": 5, {given}, "Fwd thread id": 0, "Sequence number": 4}}"#),
                9,
                4,
                None,
            ),
            (format!("{{\n      \"External id\": 9, \"Sequence number\": 4, {given}\n    }}"), 9, 4, None),
        ] {
            let expected = OperatorArguments { external: Some(external), node: Some(node), forward_thread, given };
            assert_eq!(OperatorArguments::of(&text), expected, "{text}");
        }
        for text in ["", "{}", "null", r#"{"Ev Idx": 2}"#, r#"{"#] {
            assert_eq!(OperatorArguments::of(text), OperatorArguments::default(), "{text}");
        }
        for text in [
            r#"{"Input Dims": [[8, 32]], "External id": 9, "Sequence number": 4, "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "kw": {"a": 1}, "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Trace name": "a\"b", "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "Concrete Inputs": ["{a}"], "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": [2]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": "x"}"#,
        ] {
            let arguments = OperatorArguments::of(text);
            assert_eq!((arguments.external, arguments.node), (Some(9), Some(4)), "{text}");
            assert!(arguments.given.contains(r#""Input Dims": [[8, 32]]"#), "{text}");
            let whole = format!("{{{}}}", arguments.given);
            assert_eq!(Arguments::of(&whole).and_then(|given| given.dimensions), Some("[[8, 32]]"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_arguments_do_no_harm(place in any::<prop::sample::Index>(), more in "[\\[\\]{}\",: \\\\a1]{0,3}") {
            let event = EVENTS[0];
            let mut text = event[event.find("\"args\": ").unwrap() + 8..event.len() - 4].to_owned();
            text.insert_str(place.index(text.len()), &more);
            let arguments = OperatorArguments::of(&text);
            prop_assert!(text.contains(arguments.given));
        }

        #[test]
        fn damage_is_read_as_the_parser_does_or_not_at_all(
            event in 0..EVENTS.len(),
            place in any::<prop::sample::Index>(),
            byte in "[\\PC]",
        ) {
            let mut text = EVENTS[event].to_owned();
            let (place, _) = text.char_indices().nth(place.index(text.chars().count())).unwrap();
            text.replace_range(place..place + text[place..].chars().next().unwrap().len_utf8(), &byte);
            // What is in an array is not looked at here, and not understood later if it is wrong.
            if let (Some(plain), Some(parsed)) = (plain_event(&text).map(told), parsed(&text)) {
                prop_assert_eq!(plain, parsed);
            }
        }
    }
}
