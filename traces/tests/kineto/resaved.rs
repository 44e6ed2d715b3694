//! Traces that another tool saved again: in another order, in other words, and with fields where it puts them.

use std::fs;

use serde_json::{Map, Value, json};
use stepscope_traces::{Rank, Run, SpanKind};

use crate::{packed, read_bytes, shared::told, text};

const CUTTINGS: [&str; 3] = ["shapes/rank0.json.gz", "ddp/rank0.json.gz", "gpipe/rank1.json.gz"];

/// The same trace with other events.
fn with_events(trace: &str, change: impl Fn(Value) -> Vec<Value>) -> String {
    let mut trace: Map<String, Value> = serde_json::from_str(trace).unwrap();
    if let Some(Value::Array(events)) = trace.get_mut("traceEvents") {
        *events = events.drain(..).flat_map(change).collect();
    }
    Value::Object(trace).to_string()
}

/// The same trace with its clock written in another way.
fn with_base(trace: &str, change: impl Fn(i64) -> Value) -> String {
    let mut trace: Value = serde_json::from_str(trace).unwrap();
    trace["baseTimeNanoseconds"] = change(trace["baseTimeNanoseconds"].as_i64().unwrap());
    trace.to_string()
}

/// Numbers as texts, however deep they are.
fn as_texts(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, as_texts(value))).collect(),
        other => other,
    }
}

#[test]
fn order_and_layout_do_not_matter() {
    for name in CUTTINGS {
        let trace = text(name);
        let expected = told(trace.as_bytes());
        // Sorted by key, on one line and on many.
        let sorted: Value = serde_json::from_str(&trace).unwrap();
        assert!(told(sorted.to_string().as_bytes()) == expected, "{name} on one line");
        assert!(told(serde_json::to_string_pretty(&sorted).unwrap().as_bytes()) == expected, "{name} on many lines");
    }
}

#[test]
fn numbers_may_be_texts_or_floats() {
    for name in CUTTINGS {
        let trace = text(name);
        let expected = told(trace.as_bytes());
        let texts = with_events(&trace, |event| vec![as_texts(event)]);
        assert!(told(texts.as_bytes()) == expected, "{name} with texts");
        let floats = with_events(&trace, |mut event| {
            for key in ["correlation", "External id", "stream", "device"] {
                if let Some(number) = event["args"].get_mut(key)
                    && let Some(whole) = number.as_u64()
                {
                    *number = json!(whole as f64);
                }
            }
            vec![event]
        });
        assert!(told(floats.as_bytes()) == expected, "{name} with floats");
        let base = with_base(&trace, |base| json!(base as f64));
        assert!(told(base.as_bytes()) == expected, "{name} with a float for its clock");
    }
}

#[test]
fn a_beginning_and_an_end_are_one_event() {
    for name in CUTTINGS {
        let trace = text(name);
        let expected = told(trace.as_bytes());
        let apart = with_events(&trace, |event| {
            let (Some(start), Some(duration)) = (event["ts"].as_f64(), event["dur"].as_f64()) else {
                return vec![event];
            };
            // In whole nanoseconds, since a sum of floats is not one.
            let end = ((start * 1000.0).round() + (duration * 1000.0).round()) as i64;
            let end = format!("{}.{:03}", end / 1000, end % 1000);
            let end = json!({"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": end});
            let mut begin = event;
            begin["ph"] = "B".into();
            begin.as_object_mut().unwrap().remove("dur");
            vec![begin, end]
        });
        assert!(apart.contains("\"ph\":\"E\"") && !apart.contains("\"ph\":\"X\""));
        assert!(told(apart.as_bytes()) == expected, "{name}");
    }
}

#[test]
fn what_perfetto_saves_is_read() {
    for name in CUTTINGS {
        let trace: Value = serde_json::from_str(&text(name)).unwrap();
        // Its fields are gone, and arguments lie one level deeper.
        let events = trace["traceEvents"].as_array().unwrap().iter().map(|event| {
            let mut event = event.clone();
            // Names of threads stay where they are.
            if event.get("args").is_some() && event["ph"] != "M" {
                event["args"] = json!({"args": event["args"]});
            }
            event
        });
        let saved = json!({"metadata": {"trace-capture-datetime": "now"}, "traceEvents": events.collect::<Vec<_>>()});
        let (data, loss) = read_bytes(saved.to_string().as_bytes());
        assert!(loss.is_none(), "{name}: {loss:?}");
        let (expected, _) = read_bytes(trace.to_string().as_bytes());
        let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
        // What is known of a group, and which place of it a rank has, is gone with the fields.
        let told = |data: &stepscope_traces::RankData, base: i64| -> Vec<_> {
            let rows = data.spans.rows().filter(|span| !matches!(span.kind, SpanKind::Send | SpanKind::Receive));
            let said = rows.map(|span| {
                let name = data.names.get(span.name).unwrap_or_default().to_owned();
                let origin = span.origin.and_then(|origin| data.names.get(origin)).unwrap_or_default().to_owned();
                let place = (span.step, span.phase, span.micro_batch, span.stream, span.correlation);
                (span.start_ns.0 - base, span.duration_ns, name, origin, place, span.bytes, span.flops)
            });
            said.collect()
        };
        assert!(told(&data, 0) == told(&expected, base), "{name}");
    }
}

#[test]
fn fields_behind_the_events_are_used() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ddp/rank1.json.gz", "gpipe/rank1.json.gz"] {
        let trace = text(name);
        let expected = told(trace.as_bytes());
        let mut fields: Map<String, Value> = serde_json::from_str(&trace).unwrap();
        let events = fields.remove("traceEvents").unwrap();
        let behind = Value::Object(fields).to_string();
        let behind = behind.strip_prefix('{').unwrap();
        let moved = format!("{{\"traceEvents\": {events}, {behind}");
        let most_moved = format!("{{\"schemaVersion\": 1, {}", &moved[1..]);
        let packed = |text: &str| packed(text.as_bytes());
        for (file, bytes) in [
            ("a.json", moved.clone().into_bytes()),
            ("b.json.gz", packed(&moved)),
            ("c.json", most_moved.clone().into_bytes()),
            ("d.json.gz", packed(&most_moved)),
        ] {
            let path = directory.path().join(file);
            fs::write(&path, &bytes).unwrap();
            let run = Run::of_source(&path).unwrap();
            assert_eq!((run.info.world_size, run.ranks[0].info.rank), (Some(4), Rank(1)), "{name} as {file}");
            let device = run.ranks[0].info.device.as_ref().map(|device| device.name.as_str());
            assert_eq!(device, Some("NVIDIA H200"), "{name} as {file}");
            assert!(run.info.started.starts_with("2026-11-"), "{name} as {file}: {}", run.info.started);
            assert!(told(&bytes) == expected, "{name} as {file}");
        }
    }
}
