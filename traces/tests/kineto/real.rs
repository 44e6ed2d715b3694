//! Cuttings of real traces, and what another program says of them.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};
use stepscope_plan::Axis;
use stepscope_traces::{
    DriverCall, Group, GroupInfo, MemoryEvent, MemoryOperation, MicroBatch, Phase, Rank, RankData, Run, RunSource,
    Sequence, Span, SpanKind, Spans, State, Step, Window, groups_told,
};

use crate::{
    figures::{activities, extent, figures},
    fixture, read, read_bytes, text,
};

/// Each cutting, and its answers.
fn answers() -> impl Iterator<Item = (String, RankData, Value)> {
    let answers: Value = serde_json::from_slice(&fs::read(fixture("answers.json")).unwrap()).unwrap();
    let answers = answers.as_object().unwrap().clone();
    assert_eq!(answers.len(), 3);
    answers.into_iter().map(|(name, answer)| {
        let (data, loss) = read(&fixture(&format!("{name}.json.gz")));
        assert!(loss.is_none(), "{name}: {loss:?}");
        (name, data, answer)
    })
}

fn assert_figures(name: &str, figures: &Value, answer: &Value) {
    for (figure, value) in figures.as_object().unwrap() {
        assert_eq!(value, &answer[figure], "{name}: {figure}");
    }
}

#[test]
fn figures_are_the_same_to_the_nanosecond() {
    for (name, data, answer) in answers() {
        let activities = activities(&data);
        let (from, to) = extent(activities.iter());
        assert_eq!(json!(from), answer["first_start_ns"]);
        assert_figures(&name, &figures(&activities, from, to), &answer);
        let count = |wanted: fn(SpanKind) -> bool| activities.iter().filter(|span| wanted(span.kind)).count();
        assert_eq!(json!(count(|kind| kind == SpanKind::Kernel)), answer["kernels"]);
        assert_eq!(json!(count(SpanKind::is_communication)), answer["communications"]);
        assert_eq!(json!(count(SpanKind::is_copy)), answer["copies"]);
    }
}

#[test]
fn steps_are_those_of_the_launches() {
    for (name, data, answer) in answers() {
        let activities = activities(&data);
        let steps = answer["steps"].as_array().unwrap();
        for (index, step) in steps.iter().enumerate() {
            let of_step = |step: &Value| {
                let step = Some(Step(step["step"].as_i64().unwrap() as i32));
                extent(activities.iter().filter(move |span| span.step == step))
            };
            let (from, last) = of_step(step);
            let to = steps.get(index + 1).map_or(last, |next| of_step(next).0);
            assert_eq!((json!(from), json!(to)), (step["start_ns"].clone(), step["end_ns"].clone()), "{name}");
            assert_figures(&name, &figures(&activities, from, to), step);
        }
        let annotated = data.spans.rows().filter(|span| span.kind == SpanKind::Step);
        assert_eq!(annotated.map(|span| span.step.unwrap().0).collect::<Vec<_>>(), [0, 1, 2, 3], "{name}");
    }
}

#[test]
fn every_activity_has_its_launch() {
    for (name, data, answer) in answers() {
        let launches: HashMap<_, Span> = data
            .spans
            .rows()
            .filter(|span| span.kind == SpanKind::Launch)
            .map(|span| (span.correlation.unwrap(), span))
            .collect();
        let launched: HashSet<_> = activities(&data).iter().map(|activity| activity.correlation.unwrap()).collect();
        assert_eq!(json!(launches.keys().filter(|call| launched.contains(call)).count()), answer["launches"], "{name}");
        // The others say why the device waits.
        for (_, call) in launches.iter().filter(|(correlation, _)| !launched.contains(correlation)) {
            assert!(DriverCall::of(data.names.get(call.name).unwrap()).is_some(), "{name}: {call:?}");
        }
        for activity in activities(&data) {
            let launch = launches[&activity.correlation.unwrap()];
            let place = |span: &Span| (span.step, span.phase, span.micro_batch, span.stage);
            assert_eq!(place(&activity), place(&launch), "{name}");
            assert!(launch.start_ns <= activity.start_ns, "{name}");
        }
    }
}

#[test]
fn memory_adds_up_to_what_pytorch_says() {
    for (name, data, answer) in answers() {
        let (mut live, mut reserved, mut peak) = (HashMap::new(), HashMap::new(), 0);
        let mut changes = 0;
        let begin = data.memory.time_ns.get(0);
        for MemoryEvent { time_ns, op, address, bytes, .. } in data.memory.rows() {
            let lost = match op {
                MemoryOperation::Alloc => live.insert(address, bytes.unwrap()).is_some(),
                MemoryOperation::Free => live.remove(&address) != bytes,
                MemoryOperation::Reserve => reserved.insert(address, bytes.unwrap()).is_some(),
                MemoryOperation::Release => reserved.remove(&address).is_none(),
            };
            assert!(!lost, "{name}");
            changes += u64::from(time_ns > begin);
            peak = peak.max(live.values().sum::<u64>());
        }
        let (end, reserved): (u64, u64) = (live.values().sum(), reserved.values().sum());
        let found = json!({"changes": changes, "peak_bytes": peak, "end_bytes": end, "reserved_bytes": reserved});
        assert_eq!(found, answer["memory"], "{name}");
    }
}

#[test]
fn collectives_say_what_they_are() {
    let (data, _) = read(&fixture("ddp/rank0.json.gz"));
    let reduced: Vec<Span> = data.spans.rows().filter(|span| span.kind.is_communication()).collect();
    assert!(reduced.iter().all(|span| span.kind == SpanKind::AllReduce && span.group == Some(Group(0))));
    assert!(reduced.iter().all(|span| span.phase == Some(Phase::Backward) && span.step == Some(Step(0))));
    let numbers: Vec<_> = reduced.iter().map(|span| span.sequence.unwrap()).collect();
    assert_eq!(numbers, [Sequence(0), Sequence(1)]);
    assert!(reduced.iter().all(|span| span.bytes.is_some_and(|bytes| bytes > 1 << 20)));
    // Nobody knows whether a kernel that sends and receives did one or the other.
    let (data, _) = read(&fixture("gpipe/rank1.json.gz"));
    let messages: Vec<Span> = data.spans.rows().filter(|span| span.kind.is_communication()).collect();
    assert_eq!(messages.len(), 4);
    assert!(messages.iter().all(|span| (span.kind, span.sequence) == (SpanKind::Communication, None)));
}

#[test]
fn a_pipeline_says_its_micro_batches() {
    let (data, _) = read(&fixture("gpipe/rank1.json.gz"));
    let computed = |phase, step| {
        let mut micro_batches: Vec<_> = data
            .spans
            .rows()
            .filter(|span| span.kind == SpanKind::Kernel && (span.phase, span.step) == (Some(phase), Some(Step(step))))
            .map(|span| span.micro_batch)
            .collect();
        micro_batches.dedup();
        micro_batches
    };
    assert_eq!(computed(Phase::Forward, 1), [Some(MicroBatch(0)), Some(MicroBatch(1))]);
    assert_eq!(computed(Phase::Backward, 0), [Some(MicroBatch(7))]);
    assert_eq!(computed(Phase::Optimizer, 0), [None]);
}

#[test]
fn a_directory_is_a_run_of_its_ranks() {
    let run = Run::of_source(&fixture("ddp")).unwrap();
    assert_eq!(run.info.source, RunSource::Kineto);
    assert_eq!((run.info.name.as_str(), run.info.world_size), ("ddp", Some(4)));
    assert!(run.info.started.starts_with("2026-11-15T00:33:01."), "{}", run.info.started);
    assert_eq!(run.info.configuration["backend"], "nccl");
    let ranks = (0..4).map(Rank).collect();
    assert_eq!(run.info.groups, [GroupInfo { group: Group(0), axis: Axis::World, ranks }]);
    assert_eq!(run.ranks.iter().map(|rank| rank.info.rank).collect::<Vec<_>>(), [Rank(0), Rank(1)]);
    assert_eq!(run.state(), State::Complete, "which of its ranks to look at was somebody's choice");
    let device = run.ranks[1].info.device.as_ref().unwrap();
    assert_eq!((device.name.as_str(), device.memory_bytes), ("NVIDIA H200", Some(150_109_880_320)));
    assert_eq!(device.peak_flops, Some(989.4e12));
    let survey = run.ranks[0].survey().unwrap();
    assert_eq!(survey.spans.rows, run.ranks[0].read(Window::ALL).unwrap().0.spans.len() as u64);
    assert!(run.ranks[0].follow().is_err());
}

#[test]
fn groups_that_only_events_name_are_told_by_the_rank() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace: Value = serde_json::from_str(&text("ddp/rank1.json.gz")).unwrap();
    assert!(trace["distributedInfo"].as_object_mut().unwrap().remove("pg_config").is_some());
    let path = directory.path().join("rank1.json");
    fs::write(&path, trace.to_string()).unwrap();
    let run = Run::of_source(&path).unwrap();
    assert_eq!(run.info.groups, [], "what events say is known once they are read");
    let mut groups = HashSet::new();
    let spans = |_: &RankData, spans: &Spans| groups.extend(spans.rows().filter_map(|span| span.group));
    let (_, report) = run.ranks[0].read_in_pieces(Window::ALL, spans, |_| ()).unwrap();
    let [group] = report.info.groups.as_slice() else { panic!("{:?}", report.info.groups) };
    let listed: Vec<u32> = group.ranks.iter().map(|rank| rank.0).collect();
    assert_eq!((group.index, group.size, listed), (Some(1), 4, vec![0, 1, 2, 3]));
    assert_eq!(group.name.as_deref(), Some("default_pg"));
    assert_eq!(groups, HashSet::from([group.group]));
    let described = groups_told([&report.info].into_iter(), run.info.world_size);
    assert_eq!(described.iter().map(|group| group.axis).collect::<Vec<_>>(), [Axis::World]);
}

/// A rank's trace with other events, in a file of its own.
fn altered(name: &str, file: &Path, alter: impl Fn(usize, &mut Value)) {
    let mut trace: Value = serde_json::from_str(&text(name)).unwrap();
    trace["distributedInfo"].as_object_mut().unwrap().remove("pg_config");
    trace["traceEvents"].as_array_mut().unwrap().iter_mut().enumerate().for_each(|(index, event)| alter(index, event));
    fs::write(file, trace.to_string()).unwrap();
}

#[test]
fn groups_of_one_name_are_others_where_nothing_says_of_which_ranks_they_are() {
    let directory = tempfile::tempdir().unwrap();
    for (size, is_one) in [(2, false), (4, true)] {
        let groups = [0, 1].map(|rank| {
            let file = directory.path().join(format!("rank{rank}-{size}.json"));
            altered(&format!("ddp/rank{rank}.json.gz"), &file, |_, event| {
                let arguments = event.get_mut("args").and_then(Value::as_object_mut);
                if let Some(arguments) = arguments.filter(|arguments| arguments.contains_key("Process Group Name")) {
                    arguments.remove("Process Group Ranks");
                    arguments.insert("Group size".into(), json!(size));
                }
            });
            let (data, _) = read(&file);
            data.spans.rows().filter_map(|span| span.group).collect::<HashSet<Group>>()
        });
        assert!(groups.iter().all(|groups| groups.len() == 1));
        assert_eq!(groups[0] == groups[1], is_one, "of {size} ranks of 4");
    }
}

#[test]
fn launches_are_kept_where_kernels_are_not_tied_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let launches = |file: &Path| {
        let (data, _) = read(file);
        let launches = data.spans.rows().filter(|span| span.kind == SpanKind::Launch);
        launches.filter(|span| data.names.get(span.name) == Some("cudaLaunchKernel")).count()
    };
    let [whole, untied] = ["whole.json", "untied.json"].map(|name| directory.path().join(name));
    altered("ddp/rank0.json.gz", &whole, |_, _| {});
    altered("ddp/rank0.json.gz", &untied, |index, event| {
        if event["cat"] == "kernel" && index % 2 == 0 {
            event["args"].as_object_mut().unwrap().remove("correlation");
        }
    });
    assert!(launches(&whole) > 0);
    assert!(launches(&untied) >= launches(&whole));
}

#[test]
fn a_run_directory_holds_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let imported = Run::of_source(&fixture("ddp")).unwrap();
    imported.write_to(&path, &|_| {}).unwrap();
    let written = Run::of_source(&path).unwrap();
    assert_eq!(written.info, imported.info);
    assert!(imported.write_to(&path, &|_| {}).is_err(), "it is there already");
    for (one, other) in imported.ranks.iter().zip(&written.ranks) {
        let (imported, _) = one.read(Window::ALL).unwrap();
        let (read, loss) = other.read(Window::ALL).unwrap();
        assert!(loss.is_none());
        assert_eq!(
            (other.state, &other.info.device, &other.info.clock),
            (State::Complete, &one.info.device, &one.info.clock)
        );
        // A batch has one stream after another.
        let sorted = |data: &RankData| {
            let mut spans: Vec<Span> = data.spans.rows().collect();
            spans.sort_by_key(|span| (span.start_ns, span.stream, span.correlation, span.name));
            spans
        };
        assert_eq!(sorted(&imported), sorted(&read));
        assert!(imported.memory.rows().eq(read.memory.rows()));
        assert_eq!(imported.names, read.names);
    }
}

#[test]
fn a_window_has_what_touches_it() {
    let run = Run::of_source(&fixture("ddp/rank0.json.gz")).unwrap();
    let (all, _) = run.ranks[0].read(Window::ALL).unwrap();
    let from = all.spans.start_ns.get(all.spans.len() / 2);
    let window = Window { from, ..Window::ALL };
    let (mut spans, mut events) = (Vec::new(), Vec::new());
    let pieces =
        run.ranks[0].read_in_pieces(window, |_, piece| spans.extend(piece.rows()), |piece| events.extend(piece.rows()));
    let (rest, report) = pieces.unwrap();
    assert!(report.loss.is_none() && rest.names == all.names && rest.spans.is_empty());
    assert!(spans.iter().copied().eq(all.spans.rows().filter(|span| window.touches(span.interval()))));
    assert!(events.iter().copied().eq(all.memory.rows().filter(|event| event.time_ns >= from)));
    assert!(!spans.is_empty() && spans.len() < all.spans.len());
}

/// Other words for the same: categories in capitals, annotations among operators, memory without addresses.
#[test]
fn a_trace_in_the_words_of_2021_says_the_same() {
    let (now, _) = read(&fixture("ddp/rank0.json.gz"));
    let mut old = text("ddp/rank0.json.gz");
    for (word, before) in [
        ("\"kernel\"", "\"Kernel\""),
        ("\"gpu_memcpy\"", "\"Memcpy\""),
        ("\"gpu_memset\"", "\"Memset\""),
        ("\"cuda_runtime\"", "\"Runtime\""),
        ("\"cuda_driver\"", "\"Runtime\""),
        ("\"cpu_op\"", "\"Operator\""),
        ("\"user_annotation\"", "\"Operator\""),
        ("\"Addr\"", "\"Address\""),
    ] {
        old = old.replace(word, before);
    }
    let (old, loss) = read_bytes(old.as_bytes());
    assert!(loss.is_none(), "{loss:?}");
    let told = |data: &RankData| -> Vec<_> {
        let spans = data.spans.rows().filter(|span| span.kind != SpanKind::Range);
        spans.map(|span| (span.kind, span.start_ns, span.duration_ns, span.step, span.phase)).collect()
    };
    assert!(told(&now).iter().any(|(kind, .., step, _)| *kind == SpanKind::Step && step.is_some()));
    assert_eq!(told(&now), told(&old));
}

#[test]
fn collectives_have_the_numbers_that_the_trace_gives_them() {
    let name = "\"Collective name\": \"allreduce\"";
    let numbers = |said: &str| {
        let trace = text("ddp/rank0.json.gz").replace(name, &format!("{name}{said}"));
        let (data, _) = read_bytes(trace.as_bytes());
        let reduced = data.spans.rows().filter(|span| span.kind == SpanKind::AllReduce);
        let mut numbers: Vec<u64> = reduced.filter_map(|span| span.sequence).map(|number| number.0).collect();
        numbers.dedup();
        numbers
    };
    assert_eq!(numbers(", \"Seq\": 41"), [41]);
    assert_eq!(numbers(", \"Comms Id\": 17293822569102704640"), [17_293_822_569_102_704_640]);
    assert_eq!(numbers(", \"Comms Id\": \"88\", \"Seq\": 41"), [41], "which is of its group");
    assert!(numbers("").len() > 1, "those by order");
}
