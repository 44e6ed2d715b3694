//! Traces without a device: what the host did is all there is.

use stepscope_traces::{Phase, RankData, Span, SpanKind, Step};

use super::{read_bytes, trace_of};

/// A step on the CPU: autograd works on the thread that asks for it.
const EVENTS: [&str; 9] = [
    r#"{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "tid": 7, "ts": 0, "dur": 100}"#,
    r#"{"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "tid": 7, "ts": 1, "dur": 9}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "aten::stack", "tid": 7, "ts": 2, "dur": 3}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "aten::linear", "tid": 7, "ts": 20, "dur": 20, "args": {"External id": 1, "Sequence number": 5, "Fwd thread id": 0}}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "tid": 7, "ts": 21, "dur": 15, "args": {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: AddmmBackward0", "tid": 7, "ts": 50, "dur": 20, "args": {"Sequence number": 5, "Fwd thread id": 1}}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 7, "ts": 52, "dur": 10}"#,
    r#"{"ph": "X", "cat": "cpu_op", "name": "aten::norm", "tid": 7, "ts": 72, "dur": 4}"#,
    r#"{"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "tid": 7, "ts": 80, "dur": 15}"#,
];
const KERNEL: &str =
    r#"{"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 60, "dur": 5, "args": {"correlation": 1}}"#;

fn operators(data: &RankData) -> Vec<(String, Span)> {
    let ranges = data.spans.rows().filter(|span| span.kind == SpanKind::Range);
    ranges.map(|span| (data.names.get(span.name).unwrap_or_default().to_owned(), span)).collect()
}

#[test]
fn operators_are_kept_with_their_places() {
    let (data, loss) = read_bytes(trace_of(&EVENTS.join(",")).as_bytes());
    assert!(loss.is_none());
    let found: Vec<(String, i64, Option<Phase>)> =
        operators(&data).into_iter().map(|(name, span)| (name, span.duration_ns.0, span.phase)).collect();
    let expected = [
        ("aten::stack", 3000, Phase::Data),
        ("aten::linear", 20_000, Phase::Forward),
        ("aten::addmm", 15_000, Phase::Forward),
        ("autograd::engine::evaluate_function: AddmmBackward0", 20_000, Phase::Backward),
        ("aten::mm", 10_000, Phase::Backward),
        ("aten::norm", 4000, Phase::Optimizer),
    ];
    assert_eq!(found, expected.map(|(name, duration, phase)| (name.to_owned(), duration, Some(phase))));
    let origin = |span: &Span| span.origin.and_then(|origin| data.names.get(origin)).unwrap_or_default().to_owned();
    for (name, span) in operators(&data) {
        assert_eq!(span.step, Some(Step(3)), "{name}");
        assert!(origin(&span).starts_with(&name), "{name}: {}", origin(&span));
    }
    let (_, product) = &operators(&data)[2];
    assert!(origin(product).contains("f32[2,3]"), "{}", origin(product));
}

#[test]
fn operators_are_not_kept_beside_a_device() {
    let (data, _) = read_bytes(trace_of(&[&EVENTS[..], &[KERNEL]].concat().join(",")).as_bytes());
    assert_eq!(operators(&data), []);
}
