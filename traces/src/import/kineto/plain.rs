//! Reads plain events: texts without escapes, and no object but that of the arguments.
//!
//! Nearly every event is one. Its values are found and not looked at, which takes a third of the time that it takes to
//! parse them. Whatever looks different is none, and is read as any JSON is.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use memchr::{memchr_iter, memrchr};
use serde_json::value::RawValue;

use super::{
    cursor::Cursor,
    event::{ArgumentPlace, Arguments, Category, Event, TraceEventType, duration_of, number, time_of},
    layout::Layout,
};
use crate::ids::Nanos;

/// Reads the event at the beginning of a text if it is a plain one, and says how long it is. Room for it is given, since it
/// is large and there are millions.
pub(super) fn plain_event<'a>(text: &'a str, event: &mut Event<'a>, seen: &mut SeenEvents<'a>) -> Option<usize> {
    let mut cursor = Cursor::new(text);
    event.clear();
    let next = if laid_out_head(&mut cursor, event, seen).is_some() {
        if cursor.passes(",\n    \"args\": ") {
            read_arguments(&mut cursor, event, seen)?;
        }
        if cursor.passes("\n  }") {
            return Some(cursor.at());
        }
        cursor.next_key()?
    } else {
        cursor = Cursor::new(text);
        event.clear();
        cursor.first_key()?
    };
    cursor.fields_from(next, |cursor, key| {
        match key {
            "ph" => event.mark = Some(TraceEventType::of(cursor.string()?)),
            "cat" => event.set_category(Cow::Borrowed(cursor.string()?)),
            "name" => event.name = Cow::Borrowed(cursor.string()?),
            "pid" => event.process = Some(cursor.value()?),
            "tid" => event.thread = Some(cursor.value()?),
            "ts" => event.time = time_of(cursor.value()?),
            "dur" => event.duration = duration_of(cursor.value()?),
            // Whose arguments these are is not known yet.
            "args" if !is_told(event) => return None,
            "args" => read_arguments(cursor, event, seen)?,
            _ => _ = cursor.value()?,
        }
        Some(())
    })?;
    Some(cursor.at())
}

/// What was seen of events so far, of those of each category.
#[derive(Debug, Default)]
pub(super) struct SeenEvents<'a>([SeenOfCategory<'a>; 1 + Category::COUNT]);

#[derive(Debug, Default)]
struct SeenOfCategory<'a> {
    /// How their arguments are laid out.
    arguments: Layout<Option<ArgumentPlace>>,
    /// On which thread the last one was.
    thread: SeenThread<'a>,
}

/// A thread, and all that stands between the name and the time of an event on it.
#[derive(Clone, Copy, Debug, Default)]
struct SeenThread<'a> {
    text: &'a str,
    process: &'a str,
    thread: &'a str,
}

impl<'a> SeenEvents<'a> {
    fn of(&mut self, event: &Event<'_>) -> &mut SeenOfCategory<'a> {
        &mut self.0[event.category.map_or(0, |category| 1 + category as usize)]
    }
}

/// Reads the arguments of an event of which it is known what it is.
#[inline(always)]
fn read_arguments<'a>(cursor: &mut Cursor<'a>, event: &mut Event<'a>, seen: &mut SeenEvents<'a>) -> Option<()> {
    if event.keeps_arguments() {
        event.whole_arguments = Some(cursor.object()?);
        return Some(());
    }
    let layout = &mut seen.of(event).arguments;
    let arguments = event.arguments.insert(Arguments::NONE);
    layout.fields(cursor, Arguments::named, |cursor, place| {
        let value = cursor.value()?;
        if let Some(place) = place {
            *place(arguments) = Some(value);
        }
        Some(())
    })
}

/// Reads what stands before the arguments, where Kineto itself laid it out. Comparing all that is the same in each event takes
/// half the time that it takes to look for its keys.
#[inline(always)]
fn laid_out_head<'a>(cursor: &mut Cursor<'a>, event: &mut Event<'a>, seen: &mut SeenEvents<'a>) -> Option<()> {
    if cursor.passes("{\n    \"ph\": \"X\", \"cat\": ") {
        event.mark = Some(TraceEventType::Complete);
        event.set_category(Cow::Borrowed(cursor.key()?));
        cursor.passes(", \"name\": ").then_some(())?;
    } else {
        cursor.passes("{\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": ").then_some(())?;
        event.mark = Some(TraceEventType::Instant);
        event.set_category(Cow::Borrowed("cpu_instant_event"));
    }
    event.name = Cow::Borrowed(cursor.string()?);
    let last = &mut seen.of(event).thread;
    if last.text.is_empty() || !cursor.passes(last.text) {
        *last = laid_out_thread(cursor)?;
    }
    (event.process, event.thread) = (Some(last.process), Some(last.thread));
    event.time = match cursor.thousandths() {
        None => time_of(cursor.number()?),
        time => time.map(Nanos),
    };
    if cursor.passes(", \"dur\": ") {
        event.duration = match cursor.thousandths() {
            None => duration_of(cursor.number()?),
            duration => duration.map(Nanos),
        };
    }
    is_told(event).then_some(())
}

fn laid_out_thread<'a>(cursor: &mut Cursor<'a>) -> Option<SeenThread<'a>> {
    let begin = cursor.at();
    (cursor.passes(", \"pid\": ") || cursor.passes(",\n    \"pid\": ")).then_some(())?;
    let process = cursor.number()?;
    cursor.passes(", \"tid\": ").then_some(())?;
    let thread = cursor.number()?;
    cursor.passes(",\n    \"ts\": ").then_some(SeenThread { text: cursor.since(begin), process, thread })
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

/// What a key says of an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperatorKey {
    External,
    Node,
    ForwardThread,
    Other,
}

impl OperatorKey {
    fn named(key: &str) -> OperatorKey {
        match key {
            "External id" => OperatorKey::External,
            "Sequence number" => OperatorKey::Node,
            "Fwd thread id" => OperatorKey::ForwardThread,
            _ => OperatorKey::Other,
        }
    }
}

impl<'a> OperatorArguments<'a> {
    /// Those of a text.
    pub(super) fn of(text: &'a str, layout: &mut Layout<OperatorKey>) -> OperatorArguments<'a> {
        OperatorArguments::plain(text, layout).unwrap_or_else(|| OperatorArguments::parsed(text))
    }

    /// Those of a plain text. What is given are lists, one behind the other.
    fn plain(text: &'a str, layout: &mut Layout<OperatorKey>) -> Option<OperatorArguments<'a>> {
        let mut arguments = OperatorArguments::default();
        let mut lists: Option<Range<usize>> = None;
        let mut stopped = false;
        let walked = layout.fields(&mut Cursor::new(text), OperatorKey::named, |cursor, key| {
            if cursor.byte()? == b'[' {
                let begin = lists.as_ref().map_or_else(|| cursor.field(), |lists| lists.start);
                if let Some(end) = end_of_lists(text, begin) {
                    lists = Some(begin..end);
                    stopped = true;
                    return None;
                }
                cursor.skip_array()?;
                lists = Some(begin..cursor.at());
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
            arguments.take(OperatorKey::named(&key), value.get());
            arguments.given = text.trim_start_matches('{').trim_end_matches('}');
        }
        arguments
    }

    fn take(&mut self, key: OperatorKey, value: &str) {
        match key {
            OperatorKey::External => self.external = number(Some(value)),
            OperatorKey::Node => self.node = number(Some(value)),
            OperatorKey::ForwardThread => self.forward_thread = number(Some(value)).filter(|thread| *thread > 0),
            OperatorKey::Other => {}
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

    fn plain(text: &str) -> Option<String> {
        let mut event = Event::default();
        let bytes = plain_event(text, &mut event, &mut SeenEvents::default())?;
        Some(told((event, bytes)))
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
            assert_eq!(plain(&text), parsed(&text));
            assert!(plain(&text).is_some(), "{text}");
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
            assert_eq!(plain(text), None, "{text}");
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
            assert_eq!(OperatorArguments::of(&text, &mut Layout::default()), expected, "{text}");
        }
        for text in ["", "{}", "null", r#"{"Ev Idx": 2}"#, r#"{"#] {
            assert_eq!(OperatorArguments::of(text, &mut Layout::default()), OperatorArguments::default(), "{text}");
        }
        for text in [
            r#"{"Input Dims": [[8, 32]], "External id": 9, "Sequence number": 4, "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "kw": {"a": 1}, "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Trace name": "a\"b", "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "Concrete Inputs": ["{a}"], "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": [2]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": "x"}"#,
        ] {
            let arguments = OperatorArguments::of(text, &mut Layout::default());
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
            let arguments = OperatorArguments::of(&text, &mut Layout::default());
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
            if let (Some(plain), Some(parsed)) = (plain(&text), parsed(&text)) {
                prop_assert_eq!(plain, parsed);
            }
        }
    }
}
