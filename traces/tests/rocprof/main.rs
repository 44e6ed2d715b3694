//! Reads rocprofv3's JSON that is made here, and damaged files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use stepscope_traces::{Loss, Run, SpanKind, State, Window};
use tempfile::TempDir;

use crate::{fuzz::fuzz, reads::Reads};

fn agent(handle: u64, kind: u32, number: u32, name: &str) -> Value {
    json!({
        "size": 312, "id": { "handle": handle }, "type": kind, "name": "gfx942", "product_name": name,
        "logical_node_type_id": number, "mem_banks": [{ "size_in_bytes": 100 }, { "size_in_bytes": 28 }],
    })
}

/// A record of these times. What else it has is in `more`.
fn record(kind: u32, operation: u32, correlation: u64, (start, end): (u64, u64), more: &Value) -> Value {
    let mut record = json!({
        "size": 48, "kind": kind, "operation": operation, "thread_id": 908,
        "correlation_id": { "internal": correlation, "external": 0 },
        "start_timestamp": start, "end_timestamp": end,
    });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

fn dispatch(agent: u64, kernel: u64, correlation: u64, times: (u64, u64)) -> Value {
    let info = json!({ "agent_id": { "handle": agent }, "queue_id": { "handle": 3 }, "kernel_id": kernel });
    record(3, 2, correlation, times, &json!({ "dispatch_info": info, "stream_id": { "handle": 5 } }))
}

fn copy(from: u64, to: u64, times: (u64, u64)) -> Value {
    let agents = json!({ "src_agent_id": { "handle": from }, "dst_agent_id": { "handle": to }, "bytes": 4096 });
    record(2, 1, 50, times, &agents)
}

fn process() -> Value {
    let nothing = json!({});
    json!({
        "metadata": {
            "node": { "hostname": "node7" }, "pid": 908, "command": ["python", "train.py"],
            "config": { "anything": [1, { "a": null }] },
        },
        "agents": [agent(1, 1, 0, "a processor"), agent(11, 2, 1, "AMD Instinct MI300X"), agent(10, 2, 0, "AMD Instinct MI300X")],
        "counters": [],
        "strings": {
            "callback_records": [],
            "buffer_records": [
                { "kind": "NONE", "operations": [] },
                { "kind": "HIP_RUNTIME_API", "operations": ["hipInit", "hipLaunchKernel"] },
                { "kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"] },
                { "kind": "KERNEL_DISPATCH", "operations": [] },
                { "kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA"] },
                { "kind": "RCCL_API", "operations": ["ncclAllGather", "ncclAllReduce"] },
            ],
            "marker_api": [{ "key": 90, "value": "forward" }],
        },
        "kernel_symbols": [
            { "kernel_id": 0, "kernel_name": "", "formatted_kernel_name": "0" },
            { "kernel_id": 1, "kernel_name": "_Zadd.kd", "formatted_kernel_name": "void add<float>(float*)" },
            { "kernel_id": 2, "kernel_name": "__amd_rocclr_fillBufferAligned.kd", "formatted_kernel_name": "" },
            { "kernel_id": 3, "formatted_kernel_name": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)" },
        ],
        "callback_records": { "counter_collection": [] },
        "buffer_records": {
            "kernel_dispatch": [
                dispatch(10, 1, 70, (1_000, 1_500)),
                dispatch(10, 2, 71, (1_500, 1_600)),
                dispatch(10, 3, 72, (2_000, 3_000)),
                dispatch(11, 1, 73, (1_000, 1_250)),
            ],
            "hip_api": [
                record(1, 1, 70, (100, 110), &nothing),
                record(1, 1, 72, (210, 220), &nothing),
                record(1, 1, 73, (300, 310), &nothing),
                record(1, 0, 99, (400, 410), &nothing),
            ],
            "hsa_api": [],
            "marker_api": [record(4, 1, 90, (50, 150), &nothing), record(4, 0, 91, (50, 50), &nothing)],
            "rccl_api": [record(5, 1, 80, (200, 230), &nothing)],
            "memory_copy": [copy(1, 10, (500, 600)), copy(11, 1, (700, 800)), copy(10, 11, (900, 950))],
            "scratch_memory": [{ "kind": "something" }],
        },
    })
}

fn run_of(bytes: &[u8]) -> (TempDir, Run) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("908_results.json");
    fs::write(&path, bytes).unwrap();
    let run = Run::of_source(&path).unwrap();
    (directory, run)
}

fn results(processes: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({ "rocprofiler-sdk-tool": processes })).unwrap()
}

/// Each span in a few words, and what is lost.
fn told(run: &Run, rank: usize) -> (Vec<String>, Loss) {
    let (data, loss) = run.ranks[rank].read(Window::ALL).unwrap();
    let text = |id| data.names.get(id).unwrap_or("?").replace('\t', "|");
    let tell = |span: stepscope_traces::Span| {
        let mut words = vec![span.kind.to_string(), text(span.name), format!("{}+{}", span.start_ns, span.duration_ns)];
        words.extend(span.stream.map(|stream| format!("on {stream}")));
        words.extend(span.phase.map(|phase| phase.to_string()));
        words.extend(span.bytes.map(|bytes| format!("{bytes} B")));
        words.extend(span.origin.map(|origin| format!("by {}", text(origin))));
        words.join(", ")
    };
    (data.spans.rows().map(tell).collect(), loss)
}

#[test]
fn each_gpu_of_a_process_is_a_rank() {
    let (_directory, run) = run_of(&results(&json!([process()])));
    assert_eq!((run.ranks.len(), run.info.host.as_str()), (2, "node7"));
    assert_eq!(run.info.command, ["python", "train.py"]);
    let first = [
        "phase, forward, 50+100, on 908, forward",
        "launch, hipLaunchKernel, 100+10, on 908, forward",
        "launch, hipLaunchKernel, 210+10, on 908",
        "copy, Memcpy HtoD, 500+100, 4096 B",
        "kernel, void add<float>(float*), 1000+500, on 5, forward",
        "set, __amd_rocclr_fillBufferAligned, 1500+100, on 5",
        "communication, ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>), 2000+1000, on 5, by ncclAllReduce",
    ];
    let second = [
        "phase, forward, 50+100, on 908, forward",
        "launch, hipLaunchKernel, 300+10, on 908",
        "copy, Memcpy DtoH, 700+100, 4096 B",
        "copy, Memcpy DtoD, 900+50, 4096 B",
        "kernel, void add<float>(float*), 1000+250, on 5",
    ];
    assert_eq!(told(&run, 0), (first.map(str::to_owned).into(), Loss::default()));
    assert_eq!(told(&run, 1), (second.map(str::to_owned).into(), Loss::default()));
    for rank in [0, 1] {
        let info = &run.ranks[rank].info;
        assert_eq!((run.ranks[rank].state, info.pid, info.collector.device), (State::Complete, 908, Some(rank as u32)));
        let device = info.device.as_ref().unwrap();
        assert_eq!((device.name.as_str(), device.memory_bytes), ("AMD Instinct MI300X", Some(128)));
        assert!(device.peak_flops.is_some());
    }
}

#[test]
fn packed_files_and_single_processes_are_read_too() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&results(&process())).unwrap();
    let (_directory, run) = run_of(&packed.finish().unwrap());
    assert_eq!(run.ranks.len(), 2);
    let (_directory, run) = run_of(&results(&json!([process(), process()])));
    assert_eq!(run.ranks.len(), 4, "two processes");
}

#[test]
fn a_file_without_kernels_says_how_to_record_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1_results.json");
    fs::write(&path, results(&json!([{ "metadata": null, "buffer_records": { "hip_api": [] } }]))).unwrap();
    let error = Run::of_source(&path).unwrap_err().to_string();
    assert!(error.ends_with("a file of rocprofv3 without kernels; record it with --kernel-trace"), "{error}");
}

#[test]
fn records_that_say_too_little_are_counted() {
    let mut process = process();
    let records = process["buffer_records"]["kernel_dispatch"].as_array_mut().unwrap();
    records[1]["start_timestamp"] = json!(null);
    records[2]["dispatch_info"] = json!({ "agent_id": { "handle": "none" } });
    records[3]["end_timestamp"] = json!(-5);
    records.push(json!({}));
    let (_directory, run) = run_of(&results(&json!([process])));
    let (spans, loss) = told(&run, 0);
    assert_eq!((run.ranks.len(), loss.unreadable_events), (1, 4));
    assert_eq!(spans.iter().filter(|span| span.starts_with("kernel")).count(), 1);
}

#[test]
fn a_torn_file_is_read_as_far_as_it_is_there() {
    let whole = results(&json!([process()]));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1_results.json");
    for length in (0..whole.len()).step_by(7) {
        fs::write(&path, &whole[..length]).unwrap();
        if let Ok(run) = Run::of_source(&path) {
            run.ranks.iter().for_each(|rank| drop(rank.read(Window::ALL).unwrap()));
        }
    }
    let (_directory, run) = run_of(&whole[..whole.len() - 3]);
    assert_eq!((run.ranks.len(), run.ranks[0].state), (2, State::Interrupted));
    assert_eq!(run.ranks[0].info.reason.as_deref(), Some("it is truncated"));
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.unreadable_bytes > 0 && data.spans.rows().any(|span| span.kind == SpanKind::Kernel));
    fs::write(&path, &whole[..60]).unwrap();
    let error = Run::of_source(&path).unwrap_err().to_string();
    assert!(error.ends_with("without kernels: it is truncated; copy it again, or let rocprofv3 finish"), "{error}");
}

#[test]
fn fuzzed_results() {
    let reads = Reads::named("908_results.json");
    fuzz!(vec![results(&json!([process()]))], |bytes: &[u8]| reads.read(bytes));
}

/// Objects inside of objects inside of objects are not followed without end.
#[test]
fn nested_values_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1_results.json");
    let nested = format!("{{\"rocprofiler-sdk-tool\": [{{\"agents\": {}", "[{\"id\": ".repeat(100_000));
    fs::write(&path, nested).unwrap();
    assert!(Run::of_source(&path).is_err());
}
