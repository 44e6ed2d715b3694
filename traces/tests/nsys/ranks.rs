use rusqlite::params;
use stepscope_traces::{Correlation, Loss, Nanos, Rank, RunSource, SpanKind, State, Stream};

use crate::export::{BEGAN, Export, activities, global, name};

#[test]
fn a_rank_is_a_process_on_a_device() {
    let export = Export::new();
    for (id, number, gpu) in [(4, 0, "NVIDIA H100 80GB HBM3"), (3, 1, "NVIDIA A100-SXM4-80GB")] {
        let uuid = format!("uuid {id}");
        let bus = format!("0000:0{id}:00.0");
        let row = params![id, gpu, uuid, number, bus];
        export.run("INSERT INTO TARGET_INFO_GPU VALUES (1, ?1, ?2, 80000, ?3, ?4, ?5)", row);
    }
    // The process 30 has its GPUs in another order.
    export.run("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3, 0, 30, NULL)", []);
    export.run("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, '', 'Hostname', 1, 'node7')", []);
    export.run("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2026.1.1')", []);
    export.kernel(20, 1, "void second<float>(int)", 100, 130);
    export.kernel(20, 0, "void first<float>(int)", 200, 240);
    export.kernel(10, 0, "void other<float>(int)", 300, 350);
    export.kernel(30, 0, "void third<float>(int)", 400, 460);
    export.range(99, 99, "a process without a GPU", 0, 10);

    let run = export.open();
    assert_eq!((run.info.source, run.info.name.as_str()), (RunSource::Nsys, "report"));
    assert_eq!((run.info.host.as_str(), run.state()), ("node7", State::Complete));
    assert!(run.info.started.starts_with("2026-05-28T"), "{}", run.info.started);
    assert_eq!(run.info.configuration["nsys"], "2026.1.1");
    let ranks: Vec<_> = run
        .ranks
        .iter()
        .map(|rank| {
            let device = rank.info.device.as_ref().unwrap();
            (rank.info.rank, rank.info.pid, rank.info.collector.device.unwrap(), device.name.as_str())
        })
        .collect();
    assert_eq!(
        ranks,
        [
            (Rank(0), 10, 0, "NVIDIA H100 80GB HBM3"),
            (Rank(1), 20, 0, "NVIDIA H100 80GB HBM3"),
            (Rank(2), 30, 0, "NVIDIA A100-SXM4-80GB"),
            (Rank(3), 20, 1, "NVIDIA A100-SXM4-80GB"),
        ]
    );
    // The one in its machine, whatever CUDA calls it.
    let indices: Vec<_> = run.ranks.iter().map(|rank| rank.info.topology.gpu.index).collect();
    assert_eq!(indices, [Some(4), Some(4), Some(3), Some(3)]);
    assert_eq!(run.ranks[0].info.topology.gpu.pci_bus.as_deref(), Some("0000:04:00.0"));
    let device = run.ranks[0].info.device.as_ref().unwrap();
    assert_eq!((device.memory_bytes, device.peak_flops), (Some(80_000), Some(989.4e12)));
    assert_eq!(run.ranks[0].info.collector.gpu_uuid.as_deref(), Some("uuid 4"));
    assert!(run.ranks.iter().all(|rank| rank.info.host == "node7"));
    for (rank, expected, duration) in [(0, "other", 50), (1, "first", 40), (2, "third", 60), (3, "second", 30)] {
        let (data, loss) = export.rank(rank);
        let [kernel] = activities(&data).try_into().unwrap();
        assert_eq!(name(&data, &kernel), format!("void {expected}<float>(int)"));
        assert_eq!((kernel.duration_ns, kernel.stream), (Nanos(duration), Some(Stream(7))));
        assert_eq!(loss, Loss::default());
    }
}

#[test]
fn calls_that_hold_up_the_host_are_kept_where_they_are_of_one_rank() {
    let export = Export::new();
    export.kernel(10, 0, "void one<float>(int)", 100, 130);
    for process in [10, 20] {
        for call in ["cudaStreamSynchronize_v3020", "cudaMalloc_v3020", "cuLibraryLoadData", "cudaGetDevice_v3020"] {
            export.call(process, process, call, 200, 300);
        }
    }
    // Nobody knows which of its GPUs a call of the process 20 is for.
    export.kernel(20, 0, "void first<float>(int)", 100, 130);
    export.kernel(20, 1, "void second<float>(int)", 100, 130);
    let calls = |rank: usize| {
        let (data, loss) = export.rank(rank);
        assert_eq!(loss, Loss::default());
        let calls = data.spans.rows().filter(|span| span.kind == SpanKind::Launch);
        let mut names: Vec<String> = calls.map(|call| name(&data, &call)).collect();
        names.sort();
        names
    };
    assert_eq!(calls(0), ["cuLibraryLoadData", "cudaLaunchKernel", "cudaMalloc", "cudaStreamSynchronize"]);
    assert_eq!([1, 2].map(calls), [["cudaLaunchKernel"]; 2]);
}

#[test]
fn activities_are_as_they_were_with_their_launches() {
    let export = Export::new();
    let launch = export.kernel_of_thread(10, 12, 0, "void gemm<float>(int)", 1_000, 1_500);
    let copy = export.call(10, 10, "cudaMemcpyAsync_v3020", 400, 410);
    export.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (500, 700, 0, 1, 14, ?1, ?2, 4096, 1, 1, 2)",
        params![copy, global(10, 0)],
    );
    export.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (2000, 2001, 0, 1, 7, NULL, ?1, 0, 64, 2)",
        [global(10, 0)],
    );
    // It launches nothing, and holds up the host.
    let wait = export.call(10, 10, "cudaDeviceSynchronize_v3020", 2_100, 9_000);
    // These are of no interest: one that does nothing of either, and one of another process with the same number.
    export.call(10, 10, "cudaGetDevice_v3020", 2_200, 2_300);
    export.call(11, 11, "cudaLaunchKernel_v7000", 1, 2);
    let (data, loss) = export.rank(0);
    assert_eq!(loss, Loss::default());
    let spans: Vec<_> = data
        .spans
        .rows()
        .map(|span| {
            let (start, stream) = (span.start_ns.0 - BEGAN, span.stream.unwrap().0);
            (span.kind, name(&data, &span), start, span.duration_ns.0, stream, span.bytes, span.correlation)
        })
        .collect();
    let (launch, copy) = (Some(Correlation(launch as u64)), Some(Correlation(copy as u64)));
    let expected = |kind, name: &str, start, duration, stream, bytes, correlation| {
        (kind, name.to_owned(), start, duration, stream, bytes, correlation)
    };
    assert_eq!(
        spans,
        [
            expected(SpanKind::Launch, "cudaMemcpyAsync", 400, 10, 10, None, copy),
            expected(SpanKind::Copy, "Memcpy HtoD (Pinned -> Device)", 500, 200, 14, Some(4096), copy),
            expected(SpanKind::Launch, "cudaLaunchKernel", 998, 2, 12, None, launch),
            expected(SpanKind::Kernel, "void gemm<float>(int)", 1_000, 500, 7, None, launch),
            expected(SpanKind::Set, "Memset (Device)", 2_000, 1, 7, Some(64), None),
            expected(SpanKind::Launch, "cudaDeviceSynchronize", 2_100, 6_900, 10, None, Some(Correlation(wait as u64))),
        ]
    );
}

#[test]
fn copies_on_other_devices_are_of_the_rank_of_their_process() {
    let export = Export::new();
    export.kernel(10, 0, "kernel", 100, 200);
    let copy = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?1, ?1 + 5, ?2, 1, 7, NULL, ?3, 1, 10, 2, 2)";
    export.run(copy, [300, 1, global(10, 0)]);
    export.run(copy, [400, 1, global(77, 0)]);
    let run = export.open();
    assert_eq!(run.ranks.len(), 1);
    let (data, _) = export.rank(0);
    let streams: Vec<_> = activities(&data).iter().map(|span| (span.kind, span.stream.unwrap().0)).collect();
    assert_eq!(streams, [(SpanKind::Kernel, 7), (SpanKind::Copy, 7 | 2 << 24)]);
    let failed = run.ranks[0].info.collector.failed_sources.as_ref().unwrap();
    assert_eq!(failed.0["copies of other processes"], "not read; 1 transfer of processes that ran no kernels");
}

#[test]
fn exports_of_the_first_versions_have_texts_in_their_rows_and_no_processes() {
    let export = Export::empty();
    let statements = "
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, demangledName TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
            nameId TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, copyKind INTEGER, bytes INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 7, 1, 'void old<int>(int)');
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (20, 30, 0, 7, 2, 8, 64);";
    export.database.execute_batch(statements).unwrap();
    let call = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, ?1, 1, 'cudaLaunchKernel')";
    export.run(call, [global(10, 11)]);
    export.run("INSERT INTO NVTX_EVENTS VALUES (0, 5, 59, 'forward', ?1)", [global(10, 11)]);
    let run = export.open();
    assert_eq!((run.ranks.len(), run.ranks[0].info.pid), (1, 10));
    let (data, _) = export.rank(0);
    let spans: Vec<_> = data.spans.rows().map(|span| (name(&data, &span), span.start_ns.0, span.phase)).collect();
    let forward = Some(stepscope_traces::Phase::Forward);
    let expected = [
        ("forward", 0, forward),
        ("cudaLaunchKernel", 1, forward),
        ("void old<int>(int)", 10, forward),
        ("Memcpy DtoD", 20, None),
    ];
    assert_eq!(spans, expected.map(|(name, start, phase)| (name.to_owned(), start, phase)));
}

#[test]
fn graphs_that_were_recorded_as_a_whole_are_said() {
    let export = Export::new();
    export.database.execute_batch(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL, contextId INTEGER NOT NULL,
            streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER);",
    ).unwrap();
    let graph = "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (10, 90, 0, 3, 4, 1, 7, 1, ?1)";
    export.run(graph, [global(10, 0)]);
    let (data, _) = export.rank(0);
    let [span] = activities(&data).try_into().unwrap();
    assert_eq!((span.kind, name(&data, &span).as_str(), span.duration_ns.0), (SpanKind::Kernel, "CUDA graph 3", 80));
    let run = export.open();
    let failed = run.ranks[0].info.collector.failed_sources.as_ref().unwrap();
    let said = "1 CUDA graph recorded as a whole; use --cuda-graph-trace=node";
    assert_eq!(failed.0["kernels in CUDA graphs"], said);
}

#[test]
fn what_has_no_gpu_says_what_it_has() {
    let export = Export::new();
    export.range(10, 10, "forward", 0, 5);
    export.call(10, 10, "cudaMalloc_v3020", 0, 1);
    let run = export.open();
    assert_eq!(run.ranks.len(), 1);
    let failed = run.ranks[0].info.collector.failed_sources.as_ref().unwrap();
    assert_eq!(
        failed.0["GPU activity"],
        "the export has none, but 1 NVTX range and 1 CUDA call; record it with --trace=cuda,nvtx"
    );
    assert!(activities(&export.rank(0).0).is_empty());
}

#[test]
fn a_session_that_only_copied_is_a_rank() {
    let export = Export::new();
    let copy = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 5, 0, 1, 7, NULL, ?1, 1, 10, 2, 2)";
    export.run(copy, [global(10, 0)]);
    assert_eq!(activities(&export.rank(0).0).len(), 1);
    assert_eq!(export.open().ranks[0].info.collector.failed_sources, None);
}
