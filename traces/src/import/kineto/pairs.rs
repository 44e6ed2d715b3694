//! Ranges that are written as two events: where they begin (`B`) and where they end (`E`).
//!
//! An end belongs to what began last on its thread and has not ended. Kineto writes one event for both; tools that save a
//! trace again may not.

use std::collections::HashMap;

use super::{
    event::{Category, Event, TraceEventType},
    value::TraceValue,
};
use crate::ids::Nanos;

/// How many ranges may be open at once. Threads have dozens.
const MOST_OPEN: usize = 1 << 20;

/// Ranges that have begun, by process and thread.
#[derive(Debug, Default)]
pub(super) struct OpenRanges {
    threads: HashMap<(String, String), Vec<PairedRange>>,
    open: usize,
    /// Those for which there was no room.
    dropped: u64,
    were_any: bool,
}

/// A range: what its beginning said of it, and from its end on how long it took.
#[derive(Debug)]
pub(super) struct PairedRange {
    category: Option<Category>,
    other_category: Option<String>,
    name: String,
    thread: Option<String>,
    time: Option<Nanos>,
    duration: Option<Nanos>,
    arguments: Option<String>,
}

impl OpenRanges {
    /// Keeps a range until it ends.
    pub(super) fn begin(&mut self, event: &Event<'_>) {
        self.were_any = true;
        if self.open >= MOST_OPEN {
            self.dropped += 1;
            return;
        }
        self.open += 1;
        let range = PairedRange {
            category: event.category,
            other_category: event.other_category.map(str::to_owned),
            name: event.name.as_ref().to_owned(),
            thread: event.thread.map(written),
            time: event.time,
            duration: None,
            arguments: event.whole_arguments.map(str::to_owned),
        };
        self.threads.entry(thread_of(event)).or_default().push(range);
    }

    /// The range that ends here; none, where none is open.
    pub(super) fn end(&mut self, event: &Event<'_>) -> Option<PairedRange> {
        self.were_any = true;
        let mut range = self.threads.get_mut(&thread_of(event))?.pop()?;
        self.open -= 1;
        let duration = event.time.zip(range.time).and_then(|(end, begin)| end.0.checked_sub(begin.0));
        range.duration = duration.filter(|duration| *duration >= 0).map(Nanos);
        range.arguments = range.arguments.or_else(|| event.whole_arguments.map(str::to_owned));
        Some(range)
    }

    /// Whether there was any beginning or end.
    pub(super) fn were_any(&self) -> bool {
        self.were_any
    }

    /// How many have not ended.
    pub(super) fn left(&self) -> u64 {
        self.open as u64 + self.dropped
    }
}

impl PairedRange {
    /// It, as one event.
    pub(super) fn event(&self) -> Event<'_> {
        let mut event = Event {
            mark: Some(TraceEventType::Complete),
            category: self.category,
            other_category: self.other_category.as_deref(),
            name: self.name.as_str().into(),
            thread: self.thread.as_deref().map(TraceValue::of),
            time: self.time,
            duration: self.duration,
            ..Event::default()
        };
        // Arguments that cannot be read are none.
        _ = self.arguments.as_deref().and_then(|arguments| event.set_arguments(arguments));
        event
    }
}

/// Threads of different processes may have the same number.
fn thread_of(event: &Event<'_>) -> (String, String) {
    (event.process.unwrap_or_default().to_owned(), event.thread.map(written).unwrap_or_default())
}

fn written(value: TraceValue<'_>) -> String {
    value.written().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::kineto::{event::Meaning, value::number};

    fn event(text: &str) -> Event<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_end_is_that_of_what_began_last_on_its_thread() {
        let mut ranges = OpenRanges::default();
        for begin in [
            r#"{"ph": "B", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": 7, "ts": 10, "args": {"External id": 3}}"#,
            r#"{"ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 11.5, "args": {"stream": 7}}"#,
            r#"{"ph": "B", "cat": "cpu_op", "name": "inner", "pid": 1, "tid": 7, "ts": 12}"#,
        ] {
            ranges.begin(&event(begin));
        }
        let mut end = |text: &str| ranges.end(&event(text));
        let inner = end(r#"{"ph": "E", "pid": 1, "tid": 7, "ts": 20, "args": {"External id": 4}}"#).unwrap();
        let outer = end(r#"{"ph": "E", "pid": 1, "tid": 7, "ts": 30.25}"#).unwrap();
        let kernel = end(r#"{"ph": "E", "pid": 0, "tid": 7, "ts": 12.001}"#).unwrap();
        assert!(end(r#"{"ph": "E", "pid": 0, "tid": 7, "ts": 40}"#).is_none());
        let said = |range: &PairedRange| {
            let event = range.event();
            (event.name.to_string(), event.time.unwrap(), event.duration, event.meaning())
        };
        let (operator, nanos) = (Some(Meaning::Operator), |duration| Some(Nanos(duration)));
        assert_eq!(said(&inner), ("inner".into(), Nanos(12_000), nanos(8000), operator));
        assert_eq!(inner.event().whole_arguments, Some(r#"{"External id": 4}"#), "the end may have them");
        assert_eq!(said(&outer), ("outer".into(), Nanos(10_000), nanos(20_250), operator));
        assert_eq!(said(&kernel), ("k".into(), Nanos(11_500), nanos(501), Some(Meaning::Kernel)));
        assert_eq!(number(kernel.event().arguments().stream()), Some(7_u32));
        assert_eq!(ranges.left(), 0);
    }

    #[test]
    fn what_has_not_ended_is_counted() {
        let mut ranges = OpenRanges::default();
        ranges.begin(&event(r#"{"ph": "B", "name": "a", "pid": 1, "tid": 7, "ts": 10}"#));
        assert!(ranges.end(&event(r#"{"ph": "E", "pid": 1, "tid": 8, "ts": 10}"#)).is_none());
        assert!(ranges.were_any() && ranges.left() == 1);
        let back = ranges.end(&event(r#"{"ph": "E", "pid": 1, "tid": 7, "ts": 9}"#)).unwrap();
        assert_eq!(back.event().duration, None, "it ends before it begins");
    }
}
