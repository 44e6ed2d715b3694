//! Reads databases of rocprofv3, which are made here in its schema.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

use std::fs;

use rusqlite::Connection;
use stepscope_traces::{Loss, Phase, Run, RunSource, SpanKind, Step, Window};

use crate::{fuzz::fuzz, reads::Reads};

/// The tables of schema version 3, without columns that nobody reads; one process on two GPUs.
const TABLES: &str = "
    CREATE TABLE rocpd_metadata_1f (id INTEGER PRIMARY KEY, tag TEXT NOT NULL, value TEXT NOT NULL);
    CREATE TABLE rocpd_string_1f (id INTEGER PRIMARY KEY, guid TEXT, string TEXT NOT NULL);
    CREATE TABLE rocpd_info_node_1f (id INTEGER PRIMARY KEY, guid TEXT, hostname TEXT);
    CREATE TABLE rocpd_info_process_1f (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER);
    CREATE TABLE rocpd_info_thread_1f (id INTEGER PRIMARY KEY, guid TEXT, pid INTEGER, tid INTEGER);
    CREATE TABLE rocpd_info_agent_1f (id INTEGER PRIMARY KEY, guid TEXT, type TEXT, type_index INTEGER, name TEXT,
        product_name TEXT);
    CREATE TABLE rocpd_info_kernel_symbol_1f (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT);
    CREATE TABLE rocpd_event_1f (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER,
        extdata JSONB DEFAULT '{}' NOT NULL);
    CREATE TABLE rocpd_region_1f (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
        end BIGINT, name_id INTEGER, event_id INTEGER);
    CREATE TABLE rocpd_kernel_dispatch_1f (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
        agent_id INTEGER, kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, end BIGINT,
        event_id INTEGER);
    CREATE TABLE rocpd_memory_copy_1f (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
        start BIGINT, end BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER,
        queue_id INTEGER, stream_id INTEGER, event_id INTEGER);
    CREATE VIEW kernels AS SELECT * FROM rocpd_kernel_dispatch_1f;
    INSERT INTO rocpd_string_1f VALUES (1, '', 'HIP_RUNTIME_API_EXT'), (2, '', 'MARKER_CORE_API'),
        (3, '', 'hipLaunchKernel'), (4, '', 'roctxRangePushA'), (5, '', 'MEMORY_COPY_HOST_TO_DEVICE');
    INSERT INTO rocpd_info_node_1f VALUES (1, '', 'node7');
    INSERT INTO rocpd_info_process_1f VALUES (1, '', 1, 4711);
    INSERT INTO rocpd_info_thread_1f VALUES (1, '', 1, 4712);
    INSERT INTO rocpd_info_agent_1f VALUES (1, '', 'CPU', 0, 'cpu', ''), (2, '', 'GPU', 0, 'gfx942', 'AMD Instinct MI300X'),
        (3, '', 'GPU', 1, 'gfx942', 'AMD Instinct MI300X');
    INSERT INTO rocpd_info_kernel_symbol_1f VALUES (1, '', '_Z4gemm.kd', 'gemm(float*)'),
        (2, '', 'nccl.kd', 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)');
    INSERT INTO rocpd_event_1f VALUES (1, '', 2, 1, '{\"message\": \"step 3\"}'), (2, '', 2, 2, '{\"message\": \"forward\"}'),
        (3, '', 1, 7, '{}'), (4, '', 1, 7, '{}');
    INSERT INTO rocpd_region_1f VALUES (1, '', 1, 1, 1, 0, 1000, 4, 1), (2, '', 1, 1, 1, 10, 500, 4, 2),
        (3, '', 1, 1, 1, 20, 25, 3, 3);
    INSERT INTO rocpd_kernel_dispatch_1f VALUES (1, '', 1, 1, 1, 2, 1, 1, 1, 100, 300, 4),
        (2, '', 1, 1, 1, 2, 2, 1, 1, 300, 350, NULL), (3, '', 1, 1, 1, 3, 1, 1, 1, 400, 450, NULL),
        (4, '', 1, 1, 1, 1, 1, 1, 1, 400, 450, NULL);
    INSERT INTO rocpd_memory_copy_1f VALUES (1, '', 1, 1, 1, 30, 40, 5, 2, 1, 64, 1, 1, NULL);";

#[test]
fn fuzzed_databases() {
    let (whole, reads) = (tempfile::NamedTempFile::new().unwrap(), Reads::named("4711_results.db"));
    Connection::open(whole.path()).unwrap().execute_batch(TABLES).unwrap();
    fuzz!(vec![fs::read(whole.path()).unwrap()], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn a_process_on_two_gpus_is_two_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("4711_results.db");
    Connection::open(&path).unwrap().execute_batch(TABLES).unwrap();
    let run = Run::of_source(&path).unwrap();
    assert_eq!((run.info.source, run.info.name.as_str()), (RunSource::Rocprof, "4711_results"));
    let ranks: Vec<_> = run.ranks.iter().map(|rank| (rank.info.pid, rank.info.collector.device.unwrap())).collect();
    assert_eq!(ranks, [(4711, 0), (4711, 1)]);
    assert_eq!(run.ranks[0].info.host, "node7");
    assert_eq!(run.ranks[0].info.device.as_ref().unwrap().name, "AMD Instinct MI300X");
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    let spans: Vec<_> = data
        .spans
        .rows()
        .map(|span| {
            let name = data.names.get(span.name).unwrap().to_owned();
            (span.kind, name, span.start_ns.0, span.duration_ns.0, span.step.map(|step| step.0), span.phase)
        })
        .collect();
    let forward = Some(Phase::Forward);
    let all_reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    let expected = [
        (SpanKind::Step, "step 3", 0, 1_000, Some(3), None),
        (SpanKind::Phase, "forward", 10, 490, Some(3), forward),
        (SpanKind::Launch, "hipLaunchKernel", 20, 5, Some(3), forward),
        (SpanKind::Copy, "Memcpy HtoD (Host -> Device)", 30, 10, None, None),
        (SpanKind::Kernel, "gemm(float*)", 100, 200, Some(3), forward),
        (SpanKind::AllReduce, all_reduce, 300, 50, None, None),
    ];
    let expected =
        expected.map(|(kind, name, start, length, step, phase)| (kind, name.to_owned(), start, length, step, phase));
    assert_eq!(spans, expected);
    assert_eq!(loss, Loss { unreadable_events: 1, ..Loss::default() }, "a kernel on no GPU");
    let (data, _) = run.ranks[1].read(Window::ALL).unwrap();
    assert_eq!(data.spans.rows().filter(|span| span.kind == SpanKind::Kernel).count(), 1);
    assert!(data.spans.rows().any(|span| span.step == Some(Step(3))), "ranges are of all ranks of the process");
}

#[test]
fn other_versions_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.db");
    let table = "CREATE TABLE rocpd_kernel_dispatch_1f (id INTEGER PRIMARY KEY, track_id INTEGER, start_id INTEGER)";
    Connection::open(&path).unwrap().execute_batch(table).unwrap();
    let error = Run::of_source(&path).unwrap_err().to_string();
    assert!(error.ends_with("it is a rocpd database of a version that stepscope does not read"), "{error}");
}
