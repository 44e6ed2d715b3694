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

/// A range of NCCL's whose struct is in the row as bytes.
fn say_in_bytes(export: &Export, pid: i64, name: &str, schema: i64, fields: &[&[u8]], start: i64, end: i64) {
    let fields = fields.concat();
    let head = [1, schema, fields.len() as i64, 32].map(i64::to_le_bytes).concat();
    export.run(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, binaryData)
            VALUES (?1, ?2, 59, ?3, ?4, 1, ?5)",
        params![start, end, export.text(name), global(pid, pid), [head, fields].concat()],
    );
}

#[test]
fn bytes_are_read_as_the_export_describes_them() {
    let export = Export::new();
    export
        .database
        .execute_batch(
            "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER,
                type INTEGER, name TEXT, offset INTEGER);
             INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
                (1, 16777218, 0, NULL, 18, 'NCCL communicator ID', NULL), (1, 16777218, 1, NULL, 5, 'No. of ranks', 8),
                (1, 16777218, 2, NULL, 5, 'Rank', 12), (1, 16777218, 3, NULL, 5, 'CUDA device', 16),
                (1, 16777222, 0, NULL, 18, 'NCCL communicator ID', NULL),
                (1, 16777222, 1, NULL, 22, 'Message size [bytes]', 8),
                (1, 16777222, 2, NULL, 16777227, 'Reduction operation', 16),
                (1, 16777226, 0, NULL, 18, 'NCCL communicator ID', NULL),
                (1, 16777226, 1, NULL, 22, 'Message size [bytes]', 8), (1, 16777226, 2, NULL, 5, 'Peer rank', 16);",
        )
        .unwrap();
    let communicator = u64::MAX.to_le_bytes();
    for (pid, device) in [(10, 0_u32), (11, 1)] {
        let domain =
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, 'NCCL', ?1, 1)";
        export.run(domain, [global(pid, pid)]);
        let (ranks, rank) = (2_u32.to_le_bytes(), device.to_le_bytes());
        say_in_bytes(&export, pid, "ncclCommInitRank", 16_777_218, &[&communicator, &ranks, &rank, &rank], 1, 5);
        let sum = 0_u64.to_le_bytes();
        say_in_bytes(
            &export,
            pid,
            "ncclAllReduce",
            16_777_222,
            &[&communicator, &4_000_u64.to_le_bytes(), &sum],
            10,
            30,
        );
        export.kernel(pid, device.into(), ALL_REDUCE, 20, 500);
        let (name, peer) = if device == 0 { ("ncclSend", 1_u64) } else { ("ncclRecv", 0) };
        let fields = [communicator, 64_u64.to_le_bytes(), peer.to_le_bytes()];
        say_in_bytes(&export, pid, name, 16_777_226, &fields.each_ref().map(|field| field.as_slice()), 510, 530);
        export.kernel(pid, device.into(), SEND_RECEIVE, 520, 600);
        // Bytes that were cut off, and a struct that nobody describes, say nothing.
        say_in_bytes(&export, pid, "ncclAllReduce", 16_777_222, &[&communicator], 610, 630);
        export.kernel(pid, device.into(), ALL_REDUCE, 620, 700);
        say_in_bytes(&export, pid, "ncclAllReduce", 7, &[&communicator], 710, 730);
        export.kernel(pid, device.into(), ALL_REDUCE, 720, 800);
    }
    let run = export.open();
    assert_eq!((run.info.world_size, run.info.groups.len()), (Some(2), 1));
    let group = Some(run.info.groups[0].group);
    let spans = [0, 1].map(|rank| activities(&export.rank(rank).0));
    for (spans, message) in spans.iter().zip([SpanKind::Send, SpanKind::Receive]) {
        let told: Vec<_> = spans.iter().map(|span| (span.kind, span.bytes, span.group)).collect();
        assert_eq!(
            told,
            [
                (SpanKind::AllReduce, Some(4_000), group),
                (message, Some(64), group),
                (SpanKind::AllReduce, None, group),
                (SpanKind::AllReduce, None, None),
            ]
        );
    }
    assert!(spans[0][0].sequence.is_some() && spans[0][0].sequence == spans[1][0].sequence);
}
