//! Traces of older versions of PyTorch, in which kernels that communicate have a name and nothing else.

use std::{fs, path::Path};

use stepscope_analyzer::{Analysis, Selection, analyze};
use stepscope_plan::Axis;
use stepscope_traces::{Rank, Run, SpanKind};

const SEND_AND_RECEIVE: &str = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)";
const SUM: &str = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)";

/// What a rank asks for: the range on the host, how many numbers it gives, and the kernel. Each takes 100 µs, at most.
type Asked = (&'static str, u64, &'static str);

/// The last one is of the backward pass.
const OF_A_STEP: [Asked; 4] = [
    ("nccl:all_to_all", 6_144, SEND_AND_RECEIVE),
    ("nccl:all_reduce", 394_241, SUM),
    ("nccl:all_reduce", 226_960, SUM),
    ("nccl:all_reduce", 112_000, SUM),
];

/// A trace of a rank that comes so many microseconds late to everything.
fn trace(rank: u32, world_size: u32, late: u64, asked: &[Asked]) -> String {
    let mut events = vec![
        r#"{"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 9, "tid": 7, "ts": 900, "dur": 50}"#.into(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 7, "ts": 910, "dur": 5, "args": {"correlation": 99}}"#.into(),
        r#"{"ph": "X", "cat": "kernel", "name": "multi_tensor_apply_kernel", "pid": 0, "tid": 3, "ts": 920, "dur": 20, "args": {"correlation": 99, "stream": 3}}"#.into(),
    ];
    for (place, (range, elements, kernel)) in (0..).zip(asked) {
        let (asked_at, launched_at, start) = (100 * place, 100 * place + 5, 100 * place + 20 + late);
        events.push(format!(
            r#"{{"ph": "X", "cat": "user_annotation", "name": "{range}", "pid": 9, "tid": 7, "ts": {asked_at}, "dur": 10,
                "args": {{"External id": 5, "Input Dims": [[{elements}]], "Input type": ["float"]}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 7, "ts": {launched_at}, "dur": 2,
                "args": {{"correlation": {place}}}}},
            {{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 8, "ts": {start}, "dur": {},
                "args": {{"correlation": {place}, "stream": 8}}}}"#,
            90 - late
        ));
    }
    format!(
        r#"{{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world_size}}},
            "traceEvents": [{}]}}"#,
        events.join(",")
    )
}

fn analyzed(directory: &Path, traces: &[String]) -> Analysis {
    for (rank, trace) in traces.iter().enumerate() {
        fs::write(directory.join(format!("worker{rank}.json")), trace).unwrap();
    }
    analyze(&Run::of_source(directory).unwrap(), &Selection::default(), &|_| {}).unwrap()
}

#[test]
fn collectives_are_matched_by_what_the_host_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let of_rank = |rank, late| trace(rank, 3, late, &OF_A_STEP);
    let analysis = analyzed(directory.path(), &[of_rank(0, 0), of_rank(1, 40), of_rank(2, 0)]);
    assert!(analysis.run.groups_inferred);
    let figures: Vec<_> = analysis
        .collectives
        .iter()
        .map(|figures| (figures.operation, figures.group_size, figures.count, figures.bytes, figures.waiting_ns))
        .collect();
    let sums = 4 * (394_241 + 226_960 + 112_000);
    assert_eq!(
        figures,
        [
            (SpanKind::AllReduce, Some(3), 3, Some(sums), Some(3 * 2 * 40_000)),
            (SpanKind::AllToAll, Some(3), 1, Some(4 * 6_144), Some(2 * 40_000)),
        ]
    );
    let straggler = analysis.stragglers.iter().max_by_key(|straggler| straggler.caused_wait_ns).unwrap();
    assert_eq!((straggler.rank, straggler.caused_wait_ns, straggler.wait_ns), (Rank(1), 4 * 2 * 40_000, 0));
    assert!(analysis.collectives.iter().all(|figures| figures.axis == Some(Axis::Data)));
}

#[test]
fn a_rank_that_is_not_there_may_have_been_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let of_rank = |rank, late| trace(rank, 3, late, &OF_A_STEP);
    let analysis = analyzed(directory.path(), &[of_rank(0, 0), of_rank(1, 40)]);
    assert!(!analysis.run.groups_inferred);
    assert!(analysis.collectives.iter().all(|figures| figures.waiting_ns.is_none() && figures.axis.is_none()));
    let advice = |analysis: &Analysis| {
        let exposed = analysis.findings.iter().find(|finding| finding.kind == "exposed-communication");
        exposed.unwrap().advice.clone()
    };
    assert!(advice(&analysis).starts_with("record and analyze all ranks"), "{}", advice(&analysis));
    // All are there, and one asks for something else: which ranks talk to each other is not known.
    let other = [OF_A_STEP[1], OF_A_STEP[0], OF_A_STEP[2], OF_A_STEP[3]];
    let all = [of_rank(0, 0), of_rank(1, 40), trace(2, 3, 0, &other)];
    let analysis = analyzed(directory.path(), &all);
    assert!(!analysis.run.groups_inferred);
    assert!(advice(&analysis).starts_with("overlap it"), "{}", advice(&analysis));
}

/// As recommendation models do it, whose embeddings lie on all ranks.
#[test]
fn exchanges_and_sums_in_one_group_are_about_the_run_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let [exchange, sum, ..] = OF_A_STEP;
    let of_rank = |rank, late| trace(rank, 2, late, &[exchange, exchange, exchange, sum, sum]);
    let analysis = analyzed(directory.path(), &[of_rank(0, 0), of_rank(1, 40)]);
    let axes: Vec<_> = analysis.collectives.iter().map(|figures| (figures.operation, figures.axis)).collect();
    assert_eq!(axes, [(SpanKind::AllToAll, Some(Axis::World)), (SpanKind::AllReduce, Some(Axis::World))]);
    assert_eq!(analysis.run.layout, None);
    let exposed = analysis.findings.iter().find(|finding| finding.kind == "exposed-communication").unwrap();
    assert!(exposed.summary.starts_with("exposed whole-job communication"), "{exposed:?}");
    assert!(exposed.advice.contains("all-to-all"), "{exposed:?}");
}

/// Two ranks of several, whose events name the group that they communicate in.
#[test]
fn what_events_say_of_a_group_is_right_though_most_of_its_ranks_are_not_there() {
    let named = |world_size, listed: &str, size: Option<u64>| {
        let directory = tempfile::tempdir().unwrap();
        let of_rank = |rank| {
            let size = size.map(|size| format!(r#", "Group size": {size}"#)).unwrap_or_default();
            let said = format!(
                r#""stream": 8, "Process Group Name": "1", "Process Group Description": "mesh_dp",
                "Process Group Ranks": "{listed}"{size}}}"#
            );
            trace(rank, world_size, 40 * u64::from(rank), &OF_A_STEP).replace("\"stream\": 8}", &said)
        };
        let analysis = analyzed(directory.path(), &[of_rank(0), of_rank(1)]);
        let sizes: Vec<_> = analysis.collectives.iter().map(|figures| (figures.axis, figures.group_size)).collect();
        assert!(!analysis.run.groups_inferred && !analysis.run.axes_inferred);
        (sizes, analysis.run.layout.map(|layout| layout.dp))
    };
    let both = |axis, size| vec![(axis, size); 2];
    let data = Some(Axis::Data);
    assert_eq!(named(4, "[0, 1, 2, 3]", Some(4)), (both(data, Some(4)), Some(4)));
    assert_eq!(named(4, "[0, 1]", Some(2)), (both(data, Some(2)), None), "there are four ranks, and other groups");
    assert_eq!(named(64, "[0, 1, 2, ...]", Some(64)), (both(None, Some(64)), None), "the list is cut short");
    assert_eq!(named(64, "[0, 1, 2, ...]", None), (both(None, None), None), "and nobody says how many there are");
}
