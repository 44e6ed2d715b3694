//! Traces that are cut off, damaged or made to do harm: what is readable is read, the rest is counted.

use std::fs;

use proptest::prelude::*;
use stepscope_traces::{Counter, Loss, Run, Span, SpanKind, Window};

use crate::{figures::activities, fuzz::fuzz, packed, read_bytes, reads::Reads, text, trace_of};

#[test]
fn a_trace_that_is_cut_off_is_read_as_far_as_it_goes() {
    let whole = text("ddp/rank0.json.gz").into_bytes();
    let all = read_bytes(&whole).0.spans.len();
    let mut before = 0;
    for share in [3, 5, 7, 9] {
        let cut = &whole[..whole.len() * share / 10];
        for bytes in [cut.to_vec(), packed(cut)] {
            let (data, loss) = read_bytes(&bytes);
            assert!(loss.unreadable_bytes > 0, "{share}");
            assert!(data.spans.len() >= before && data.spans.len() < all, "{share}");
            before = data.spans.len();
        }
        // The packed file itself, cut.
        let file = packed(&whole);
        let (data, loss) = read_bytes(&file[..file.len() * share / 10]);
        assert!(data.spans.len() < all && loss.unreadable_bytes > 0, "{share}");
    }
    assert!(before > 0);
}

#[test]
fn what_is_lost_of_a_trace_is_lost_of_its_copy() {
    let directory = tempfile::tempdir().unwrap();
    let (file, copy) = (directory.path().join("trace.json"), directory.path().join("run"));
    let whole = text("ddp/rank0.json.gz");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    Run::of_source(&file).unwrap().write_to(&copy, &|_| {}).unwrap();
    let run = Run::open(&copy).unwrap();
    // Every event has one mark, and the last one is cut.
    let events = whole[..whole.len() / 2].matches("\"ph\": ").count() - 1;
    let reason = format!("it breaks off after {} events", stepscope_plan::text::count(events as u64));
    assert_eq!(run.ranks[0].info.reason, Some(reason));
    assert!(run.ranks[0].read(Window::ALL).unwrap().1.dropped_events >= 1);
}

#[test]
fn fuzzed_traces() {
    let whole = text("ddp/rank0.json.gz");
    let events = whole.split_once("\"traceEvents\": [").unwrap().1.split("\n  },");
    let some: Vec<&str> = events.step_by(97).take(40).collect();
    let some = trace_of(&(some.join("\n  },") + "\n  }")).into_bytes();
    let packed = packed(&some);
    let reads = Reads::named("trace.json");
    fuzz!(vec![some, packed], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn a_packed_file_that_is_damaged_is_read_until_then() {
    let mut file = packed(text("ddp/rank0.json.gz").as_bytes());
    let middle = file.len() / 2;
    file[middle..middle + 64].fill(0xff);
    let (data, loss) = read_bytes(&file);
    assert!(!data.spans.is_empty() && loss.unreadable_bytes > 0);
}

#[test]
fn odd_events_are_counted_or_kept() {
    let events = [
        // Kept, though much of it is missing or odd.
        r#"{"ph": "X", "cat": "kernel", "name": "plain", "ts": 1.001, "dur": 0.002}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "twice", "name": "\u001b[31mred\u0007", "ts": 2, "dur": 1, "args": {"stream": 7, "stream": 8}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "odd", "ts": 3, "dur": 1, "args": {"stream": -1, "correlation": 1e400, "x": nan}}"#,
        // When they were is not said.
        r#"{"ph": "X", "cat": "kernel", "name": "negative", "ts": 4, "dur": -1}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "endless", "ts": 4, "dur": 1e300}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "after the last time", "ts": 9223372036854775.807, "dur": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "until after it", "ts": 9000000000000000, "dur": 9000000000000000}"#,
        r#"{"ph": "X", "cat": "user_annotation", "name": "and so is this", "ts": 9223372036854775.6, "dur": 0.1}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "timeless", "dur": 1}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "no duration", "ts": 4}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "not a time", "ts": NaN, "dur": 1}"#,
    ];
    let (data, loss) = read_bytes(trace_of(&events.join(",")).as_bytes());
    assert_eq!(loss, Loss { unreadable_events: 8, ..Loss::default() });
    let spans: Vec<Span> = activities(&data);
    let names: Vec<_> = spans.iter().map(|span| data.names.get(span.name).unwrap()).collect();
    assert_eq!(names, ["plain", "\u{1b}[31mred\u{7}", "odd"]);
    assert_eq!((spans[0].start_ns.0, spans[0].duration_ns.0), (1000 + 1001, 2));
    assert_eq!(spans.iter().map(|span| span.stream.map(|stream| stream.0)).collect::<Vec<_>>(), [None, Some(8), None]);
    assert!(spans.iter().all(|span| span.kind == SpanKind::Kernel && span.step.is_none()));
}

#[test]
fn what_unpacks_without_end_takes_no_memory() {
    // Hundreds of times as long as its file, and longer than any value may be.
    let spaces = packed(&vec![b' '; 16 << 20]);
    let mut bomb = packed(b"{\"schemaVersion\": 1, \"traceEvents\": [");
    (0..4).for_each(|_| bomb.extend(&spaces));
    bomb.extend(packed(b"]}"));
    let (data, loss) = read_bytes(&bomb);
    assert!(data.spans.is_empty() && loss.is_none());
    // One text that never ends.
    let mut bomb = packed(b"{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\", \"name\": \"");
    (0..4).for_each(|_| bomb.extend(&spaces));
    let (data, loss) = read_bytes(&bomb);
    assert!(data.spans.is_empty() && loss.unreadable_bytes > 60 << 20, "{loss:?}");
}

#[test]
fn names_are_counted_where_there_are_too_many() {
    let long = "n".repeat(1 << 20);
    let event = |index: usize| format!(r#"{{"ph": "X", "cat": "kernel", "name": "{index}{long}", "ts": 1, "dur": 1}}"#);
    let events: Vec<String> = (0..80).map(event).collect();
    let (data, loss) = read_bytes(&packed(trace_of(&events.join(",")).as_bytes()));
    assert_eq!((data.spans.len(), loss.is_none()), (80, true));
    let dropped = data.counters.rows().find(|sample| sample.counter == Counter::DroppedNames.id()).unwrap();
    assert!(dropped.value >= 16.0 && data.names.iter().map(|(_, name)| name.len()).sum::<usize>() < 70 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), begins in 0..4_usize) {
        let begin: &[u8] = [&b""[..], b"{", b"{\"traceEvents\": [", b"\x1f\x8b\x08\x00"][begins];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.json");
        fs::write(&path, [begin, &bytes].concat()).unwrap();
        if let Ok(run) = Run::of_source(&path) {
            drop(run.ranks[0].read(Window::ALL));
        }
    }

    #[test]
    fn damage_costs_no_more_than_it_touches(place in 0.1..0.95_f64, length in 1..2000_usize, byte in any::<u8>()) {
        let mut bytes = text("gpipe/rank1.json.gz").into_bytes();
        let whole = read_bytes(&bytes).0.spans.len();
        let place = (bytes.len() as f64 * place) as usize;
        let end = (place + length).min(bytes.len() - 1000);
        bytes[place..end].fill(byte);
        let (data, loss) = read_bytes(&bytes);
        // An event has 100 bytes at least, and with a kernel its launch is lost. A bracket may end the list.
        let most_lost = 2 * (length / 100 + 2);
        prop_assert!(data.spans.len() + most_lost >= whole || byte == b']' && !loss.is_none());
    }
}
