//! What a program did on the host.

use std::fs;

use stepscope_analyzer::{Analysis, HostOperator, Selection, StepChoice, analyze};
use stepscope_traces::{Phase, Run};

/// Three steps of 100 µs, in each of them 30 µs of waiting for data and 40 µs of operators, 10 of these inside others.
fn events() -> Vec<String> {
    let event = |category: &str, name: &str, start: i64, duration: i64| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "tid": 7, "ts": {start}, "dur": {duration}, "args": {{}}}}"#
        )
    };
    let step = |step: i64| {
        let begin = 100 * step;
        [
            event("user_annotation", &format!("ProfilerStep#{step}"), begin, 100),
            event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin + 5, 30),
            event("cpu_op", "aten::linear", begin + 40, 30),
            event("cpu_op", "aten::addmm", begin + 45, 10),
            event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", begin + 80, 10),
        ]
    };
    (4..7).flat_map(step).collect()
}

fn analyzed(events: &[String], steps: StepChoice) -> Analysis {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    fs::write(&path, format!("{{\"schemaVersion\": 1, \"traceEvents\": [{}]}}", events.join(","))).unwrap();
    let run = Run::of_source(&path).unwrap();
    let selection = Selection { steps, ..Selection::default() };
    let analysis = analyze(&run, &selection, &|_| {}).unwrap();
    // The same from a run directory.
    let written = directory.path().join("run");
    run.write_to(&written, &|_| {}).unwrap();
    let again = analyze(&Run::open(&written).unwrap(), &selection, &|_| {}).unwrap();
    assert_eq!((&again.host, &again.steps), (&analysis.host, &analysis.steps));
    analysis
}

#[test]
fn without_a_device_steps_and_operators_are_those_of_the_host() {
    let analysis = analyzed(&events(), StepChoice::Counted);
    let time = analysis.step_time.as_ref().unwrap();
    assert_eq!((time.first_step.0, time.last_step.0, time.median_ns), (5, 6, 100_000), "the first is warm-up");
    assert_eq!(analysis.steps.len(), 3);
    for step in &analysis.steps {
        assert_eq!((step.duration_ns, step.partition.idle_ns), (100_000, 100_000));
        assert_eq!((step.host_ns, step.host_data_ns), (Some(100_000), Some(30_000)));
    }
    let host = analysis.host.as_ref().unwrap();
    let rank = host.ranks[0];
    assert_eq!((rank.time_ns, rank.data_ns, rank.operators_ns), (200_000, Some(60_000), Some(80_000)));
    let operator = |operator: &str, self_ns, total_ns| HostOperator {
        operator: operator.into(),
        count: 2,
        self_ns,
        total_ns,
        share: self_ns as f64 / 80_000.0,
    };
    let expected = [
        operator("aten::linear", 40_000, 60_000),
        operator("aten::addmm", 20_000, 20_000),
        operator("autograd::engine::evaluate_function: AddmmBackward0", 20_000, 20_000),
    ];
    assert_eq!(host.operators, expected);
    let phases: Vec<_> = host.phases.iter().map(|phase| (phase.phase, phase.self_ns)).collect();
    assert_eq!(phases, [(Some(Phase::Forward), 60_000), (Some(Phase::Backward), 20_000)]);
    let kinds: Vec<&str> = analysis.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["data-loading"], "nothing is said of a device that was not recorded");
}

/// The same events, and gradients that gloo sums while autograd runs, and for 30 µs after that.
fn with_sums() -> Vec<String> {
    let event = |category: &str, name: &str, start: i64, duration: i64| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "tid": 7, "ts": {start}, "dur": {duration}, "args": {{}}}}"#
        )
    };
    let sum = |step: i64| {
        let begin = 100 * step + 60;
        [event("cpu_op", "c10d::allreduce_", begin + 22, 2), event("user_annotation", "gloo:all_reduce", begin, 38)]
    };
    events().into_iter().filter(|event| !event.contains("DataLoader")).chain((4..7).flat_map(sum)).collect()
}

#[test]
fn communication_of_the_host_is_found_where_nothing_hides_it() {
    let analysis = analyzed(&with_sums(), StepChoice::Counted);
    let rank = analysis.host.as_ref().unwrap().ranks[0];
    // Of 38 µs in each of two steps, a product takes 10, and autograd 8 of its 10.
    assert_eq!((rank.communication_ns, rank.exposed_communication_ns), (Some(76_000), Some(40_000)));
    let exposed = analysis.findings.iter().find(|finding| finding.kind == "exposed-communication").unwrap();
    assert_eq!(exposed.summary, "exposed communication: 20% of the step");
    assert_eq!(exposed.lost_ns, Some(20_000));
    assert!(exposed.evidence.text.contains("38.0 µs of it per step on the host"), "{}", exposed.evidence.text);
    let quiet = analyzed(&events(), StepChoice::Counted);
    let rank = quiet.host.as_ref().unwrap().ranks[0];
    assert_eq!((rank.communication_ns, rank.exposed_communication_ns), (Some(0), Some(0)));
}

#[test]
fn annotations_alone_are_enough_for_steps() {
    let steps: Vec<String> = events().into_iter().filter(|event| event.contains("ProfilerStep")).collect();
    let analysis = analyzed(&steps, StepChoice::Counted);
    assert_eq!(analysis.step_time.as_ref().map(|time| (time.first_step.0, time.median_ns)), Some((5, 100_000)));
    assert_eq!(analysis.host.as_ref().map(|host| host.ranks[0].time_ns), Some(200_000));
}

#[test]
fn waiting_for_data_is_known_beside_a_device() {
    let kernels = (4..7).map(|step| {
        let (start, launch) = (100 * step + 60, 100 * step + 50);
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "tid": 9, "ts": {start}, "dur": 20, "args": {{"correlation": {step}, "device": 0}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": {launch}, "dur": 2, "args": {{"correlation": {step}}}}}"#
        )
    });
    let all: Vec<String> = events().into_iter().chain(kernels).collect();
    let analysis = analyzed(&all, StepChoice::All);
    let host = analysis.host.as_ref().unwrap();
    assert_eq!((host.ranks[0].time_ns, host.ranks[0].data_ns), (300_000, Some(90_000)));
    assert_eq!((host.ranks[0].operators_ns, host.operators.len(), host.phases.len()), (None, 0, 0));
    let data = analysis.findings.iter().find(|finding| finding.kind == "data-loading").unwrap();
    assert!(data.summary.starts_with("the GPU waits for data"), "{data:?}");
    assert!(data.advice.contains("num_workers"), "{data:?}");
}
