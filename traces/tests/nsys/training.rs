use rusqlite::params;
use stepscope_traces::{Origin, Phase, SpanKind, Step};

use crate::export::{BEGAN, Export, activities, global, name};

#[test]
fn steps_and_phases_are_those_of_the_launching_thread() {
    let export = Export::new();
    export.range(10, 10, "iteration 4", 0, 1_000);
    export.range(10, 10, "forward pass", 10, 400);
    export.range(10, 10, "backward", 500, 800);
    export.range(10, 10, "optimizer_step", 850, 950);
    export.range(10, 10, "iteration 5", 1_000, 2_000);
    let autograd = export.text("pt_autograd_0");
    export.run("INSERT INTO ThreadNames VALUES (?1, NULL, ?2)", params![autograd, global(10, 33)]);
    export.kernel(10, 0, "a", 100, 2_500);
    export.kernel_of_thread(10, 33, 0, "b", 600, 2_600);
    export.kernel(10, 0, "c", 900, 2_700);
    export.kernel(10, 0, "d", 1_100, 2_800);
    export.kernel_of_thread(10, 44, 0, "e", 1_200, 2_900);
    let (data, _) = export.rank(0);
    let places: Vec<_> = activities(&data).iter().map(|span| (name(&data, span), span.step, span.phase)).collect();
    let expected = [
        ("a", 4, Some(Phase::Forward)),
        ("b", 4, Some(Phase::Backward)),
        ("c", 4, Some(Phase::Optimizer)),
        ("d", 5, None),
        ("e", 5, None),
    ];
    assert_eq!(places, expected.map(|(name, step, phase)| (name.to_owned(), Some(Step(step)), phase)));
    let steps: Vec<_> = data
        .spans
        .rows()
        .filter(|span| span.kind == SpanKind::Step)
        .map(|span| (name(&data, &span), span.start_ns.0 - BEGAN, span.duration_ns.0, span.step))
        .collect();
    let expected = [("iteration 4", 0, 1_000, 4), ("iteration 5", 1_000, 1_000, 5)];
    assert_eq!(steps, expected.map(|(name, start, length, step)| (name.to_owned(), start, length, Some(Step(step)))));
}

#[test]
fn ranges_may_be_of_domains_and_of_threads_that_do_not_end_them() {
    let export = Export::new();
    export.kernel(10, 0, "kernel", 100, 200);
    let domain = "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, 'mine', ?1, 3)";
    export.run(domain, [global(10, 10)]);
    let range = "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, endGlobalTid, textId, domainId)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let text = export.text("registered");
    export.run(range, params![10, 20, 59, global(10, 10), None::<i64>, text, 3]);
    export.run(range, params![30, 40, 60, global(10, 10), global(10, 10), text, 0]);
    export.run(range, params![50, 60, 60, global(10, 10), global(10, 11), text, 0]);
    // A mark, a range that has not ended, a range of another process, and a range that ends before it begins.
    export.run(range, params![70, None::<i64>, 34, global(10, 10), None::<i64>, text, 0]);
    export.run(range, params![80, None::<i64>, 59, global(10, 10), None::<i64>, text, 0]);
    export.run(range, params![90, 95, 59, global(20, 20), None::<i64>, text, 0]);
    export.run(range, params![99, 98, 59, global(10, 10), None::<i64>, text, 0]);
    let (data, loss) = export.rank(0);
    let ranges: Vec<_> = data
        .spans
        .rows()
        .filter(|span| span.kind == SpanKind::Range)
        .map(|span| (name(&data, &span), span.start_ns.0 - BEGAN, span.stream.map(|thread| thread.0)))
        .collect();
    let expected = [("mine:registered", 10, Some(10)), ("registered", 30, Some(10)), ("registered", 50, None)];
    assert_eq!(ranges, expected.map(|(name, start, thread)| (name.to_owned(), start, thread)));
    assert_eq!(loss.unreadable_events, 1);
    let run = export.open();
    let failed = run.ranks[0].info.collector.failed_sources.as_ref().unwrap();
    assert_eq!(failed.0["NVTX"], "left out: 1 range that had not ended when the recording did");
}

#[test]
fn operators_that_pytorch_emits_are_who_launched_a_kernel() {
    let export = Export::new();
    export.range(10, 10, "aten::linear, seq = 3, op_id = 7, sizes = [[4, 8], [16, 8], [16]]", 0, 500);
    export.range(10, 10, "aten::addmm, seq = 3, op_id = 8, sizes = [[16], [4, 8], [8, 16]]", 10, 400);
    export.range(10, 10, "FSDP::pre_forward (blocks.1), op_id = 9", 600, 700);
    export.kernel(10, 0, "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", 100, 2_500);
    let (data, _) = export.rank(0);
    let [kernel] = activities(&data).try_into().unwrap();
    let origin = Origin::of(data.names.get(kernel.origin.unwrap()).unwrap());
    assert_eq!(origin.operator, Some("aten::addmm"));
    assert_eq!(kernel.flops, Some(2 * 4 * 8 * 16));
    let ranges: Vec<_> =
        data.spans.rows().filter(|span| span.kind == SpanKind::Range).map(|span| name(&data, &span)).collect();
    assert_eq!(ranges, ["FSDP::pre_forward (blocks.1)"], "operators are no ranges");
}
