//! Reads plain events: texts without escapes, and no object but that of the arguments.
//!
//! Nearly every event is one. Its numbers are read in passing, other values are found and not looked at, which takes a third
//! of the time that it takes to parse them. Whatever looks different is none, and is read as any JSON is.

use std::borrow::Cow;

use super::{
    cursor::Cursor,
    event::{ArgumentPlace, Category, Event, TraceEventType, duration_of, time_of},
    layout::Layout,
    operator_arguments::{OperatorArguments, OperatorKey},
    value::TraceValue,
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
            "pid" => event.process = Some(cursor.written_value()?),
            "tid" => event.thread = Some(cursor.value()?),
            "ts" => event.time = time_of(cursor.written_value()?),
            "dur" => event.duration = duration_of(cursor.written_value()?),
            // Whose arguments these are is not known yet.
            "args" if !is_told(event) => return None,
            "args" => read_arguments(cursor, event, seen)?,
            _ => cursor.skip_value()?,
        }
        Some(())
    })?;
    Some(cursor.at())
}

/// What was seen of events so far.
#[derive(Debug, Default)]
pub(super) struct SeenEvents<'a> {
    /// Of those of each category.
    categories: [SeenOfCategory<'a>; 1 + Category::COUNT],
    /// How the arguments of operators are laid out.
    operators: Layout<OperatorKey>,
    /// Whether operators say what they are given.
    are_given: bool,
}

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
    thread: Option<TraceValue<'a>>,
}

impl<'a> SeenEvents<'a> {
    fn of(&mut self, event: &Event<'_>) -> &mut SeenOfCategory<'a> {
        &mut self.categories[event.category.map_or(0, |category| 1 + category as usize)]
    }
}

/// Reads the arguments of an event of which it is known what it is. This is one function for all who call it, so that what is
/// done with each field becomes part of it.
#[inline(never)]
fn read_arguments<'a>(cursor: &mut Cursor<'a>, event: &mut Event<'a>, seen: &mut SeenEvents<'a>) -> Option<()> {
    if event.keeps_arguments() {
        event.operator_arguments = if event.is_call_of_operator() { bare_arguments(cursor, seen) } else { None };
        if event.operator_arguments.is_none() {
            event.whole_arguments = Some(cursor.object()?);
        }
        return Some(());
    }
    let layout = &mut seen.of(event).arguments;
    let arguments = &mut event.arguments;
    // Of two of them the last ones count.
    arguments.clear();
    layout.fields(cursor, ArgumentPlace::named, |cursor, place| {
        match place {
            Some(place) => arguments.set(place, cursor.value()?),
            None => cursor.skip_value()?,
        }
        Some(())
    })
}

/// Reads the arguments of an operator that does not say what it is given: none, and still before them, where something else
/// stands here.
#[inline(never)]
fn bare_arguments<'a>(cursor: &mut Cursor<'a>, seen: &mut SeenEvents<'a>) -> Option<OperatorArguments<'a>> {
    if seen.are_given {
        return None;
    }
    let mut ahead = *cursor;
    let bare = OperatorArguments::bare(&mut ahead, &mut seen.operators);
    match bare {
        Some(_) => *cursor = ahead,
        // Those behind it say it, too.
        None => seen.are_given = true,
    }
    bare
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
    (event.process, event.thread) = (Some(last.process), last.thread);
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
    let thread = Some(cursor.value()?);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events of all kinds, as different versions lay them out.
    const EVENTS: [&str; 8] = [
        "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 5, \"tid\": 7,\n    \"ts\": 81617193703.898, \
         \"dur\": 159.408,\n    \"args\": {\n      \"External id\": 9,\"Sequence number\": 4, \"Fwd thread id\": 1, \"Ev Idx\": 2\n    }\n  }",
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
    fn told((mut event, bytes): (Event<'_>, usize)) -> String {
        // Those of an operator may be read later.
        if let Some(whole) = event.whole_arguments.take_if(|_| event.mark == Some(TraceEventType::Complete)) {
            event.operator_arguments = Some(OperatorArguments::of(whole, &mut Layout::default()));
        }
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
        for text in &EVENTS[..7] {
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

    proptest! {
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
