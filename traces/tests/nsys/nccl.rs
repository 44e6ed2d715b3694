use rusqlite::params;
use stepscope_plan::Axis;
use stepscope_traces::{Rank, Sequence, SpanKind};

use crate::export::{Export, activities, global};

const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const ALL_GATHER: &str = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const SEND_RECEIVE: &str = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";

/// Two ranks that know each other.
fn export() -> Export {
    let export = Export::new();
    for pid in [10, 11] {
        let domain =
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, 'NCCL', ?1, 1)";
        export.run(domain, [global(pid, pid)]);
        let rank = pid - 10;
        let made = format!("\"No. of ranks\":2,\"Rank\":{rank},\"CUDA device\":{rank}");
        say(&export, pid, "ncclCommInitRankConfig", &made, 1, 5);
    }
    export
}

/// A range of NCCL's on the main thread, about the one communicator.
fn say(export: &Export, pid: i64, name: &str, what: &str, start: i64, end: i64) {
    let (name, payload) =
        (export.text(name), export.text(&format!("{{\"NCCL communicator ID\":18446744073709551615,{what}}}")));
    export.run(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, jsonTextId)
            VALUES (?1, ?2, 59, ?3, ?4, 1, ?5)",
        params![start, end, name, global(pid, pid), payload],
    );
}

#[test]
fn kernels_have_the_bytes_and_the_numbers_of_their_operations() {
    let export = export();
    for (pid, device) in [(10, 0), (11, 1)] {
        say(&export, pid, "ncclAllReduce", "\"Message size [bytes]\":4000,\"Reduction operation\":\"Sum\"", 10, 30);
        export.kernel(pid, device, ALL_REDUCE, 20, 500);
        // Two that go together are launched behind both of them.
        say(&export, pid, "ncclAllGather", "\"Message size [bytes]\":100", 40, 42);
        say(&export, pid, "ncclAllGather", "\"Message size [bytes]\":200", 44, 46);
        export.kernel(pid, device, ALL_GATHER, 60, 600);
        say(&export, pid, "ncclAllReduce", "\"Message size [bytes]\":8,\"Reduction operation\":\"Sum\"", 70, 90);
        export.kernel(pid, device, ALL_REDUCE, 80, 700);
        export.kernel(pid, device, ALL_REDUCE, 100, 800);
    }
    let run = export.open();
    assert_eq!(run.info.world_size, Some(2));
    let [group] = run.info.groups.as_slice() else { panic!("{:?}", run.info.groups) };
    assert_eq!((group.axis, group.ranks.as_slice()), (Axis::World, [Rank(0), Rank(1)].as_slice()));
    for rank in [0, 1] {
        let (data, _) = export.rank(rank);
        let told: Vec<_> = activities(&data).iter().map(|span| (span.kind, span.bytes, span.sequence)).collect();
        assert_eq!(
            told,
            [
                (SpanKind::AllReduce, Some(4_000), Some(Sequence(0))),
                (SpanKind::AllGather, Some(2 * 100 + 2 * 200), None),
                (SpanKind::AllReduce, Some(8), Some(Sequence(3))),
                (SpanKind::AllReduce, None, None),
            ]
        );
        let groups: Vec<_> = activities(&data).iter().map(|span| span.group).collect();
        assert_eq!(groups, [Some(group.group), Some(group.group), Some(group.group), None]);
    }
}

#[test]
fn messages_have_ends() {
    let export = export();
    export.range(10, 10, "step 0", 0, 1_000);
    export.range(11, 11, "step 0", 0, 1_000);
    say(&export, 10, "ncclSend", "\"Message size [bytes]\":64,\"Peer\":1", 10, 12);
    export.kernel(10, 0, SEND_RECEIVE, 20, 100);
    say(&export, 11, "ncclRecv", "\"Message size [bytes]\":64,\"Peer\":0", 10, 12);
    export.kernel(11, 1, SEND_RECEIVE, 20, 100);
    let messages = [0, 1].map(|rank| activities(&export.rank(rank).0)[0]);
    assert_eq!(messages.map(|span| span.kind), [SpanKind::Send, SpanKind::Receive]);
    assert_eq!(messages.map(|span| span.bytes), [Some(64); 2]);
    assert!(messages[0].sequence.is_some() && messages[0].sequence == messages[1].sequence);
    assert!(messages[0].group.is_some() && messages[0].group == messages[1].group);
}
