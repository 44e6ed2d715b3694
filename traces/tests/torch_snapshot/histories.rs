use stepscope_traces::{
    MemoryCategory::{Activations, Gradients, Inputs, OptimizerState, Other, Parameters, Workspace},
    MemoryOperation, Nanos, SpanKind, Step,
};

use crate::{
    pickle_writer::{Frames, Snapshot},
    replay::{categories, replay},
};

const FORWARD: Frames = &[("at::native::silu", "??"), ("forward", "model.py")];
const BACKWARD: Frames = &[("torch::autograd::Engine::evaluate_function()", "??")];
const OPTIMIZER: Frames = &[("step", "/venv/torch/optim/adamw.py")];

/// What PyTorch kept begins in the middle of a step.
fn without_its_beginning(optimizer_state: bool) -> Snapshot {
    let mut s = Snapshot::new();
    s.free(12, 8, BACKWARD);
    s.alloc(13, 5, BACKWARD);
    s.free(14, 6, OPTIMIZER);
    if optimizer_state {
        s.alloc(15, 7, OPTIMIZER);
    }
    s.alloc(12, 9, FORWARD);
    s.event("free_requested", 12, 9, FORWARD);
    let held: &[(i64, i64, &str, Frames)] = &[
        (10, 100, "active_allocated", &[]),
        (11, 50, "active_allocated", OPTIMIZER),
        (12, 9, "active_pending_free", FORWARD),
        (13, 5, "active_allocated", BACKWARD),
        (15, 7, "active_allocated", OPTIMIZER),
        (16, 70, "inactive", &[]),
    ];
    let held: Vec<_> = held.iter().copied().filter(|block| optimizer_state || block.0 != 15).collect();
    s.segment(0, 1000, &held);
    s
}

#[test]
fn what_a_history_does_not_hand_out_was_there_from_the_beginning() {
    let imported = without_its_beginning(true).import();
    let memory = &imported.ranks[0].data.memory;
    let first: Vec<_> = memory.rows().take(5).map(|event| (event.op, event.address, event.bytes)).collect();
    let alloc = MemoryOperation::Alloc;
    let reserve = (MemoryOperation::Reserve, 0, Some(1000));
    assert_eq!(
        first,
        [reserve, (alloc, 12, Some(512)), (alloc, 14, Some(512)), (alloc, 10, Some(112)), (alloc, 11, Some(62))],
        "of what is there in the end the size is known"
    );
    let replay = replay(memory);
    assert_eq!(
        (replay.end, replay.reserved),
        (112 + 62 + 512 + 985, 1000),
        "a block that waits for its stream was given back"
    );
    assert_eq!(imported.ranks[0].info.collector.blocks_from_before, Some(4));
    assert_eq!(imported.ranks[0].info.collector.rounding_bytes_at_end, Some(60));
    let expected = [
        (10, Parameters),
        (11, OptimizerState),
        (12, Activations),
        (13, Gradients),
        (14, OptimizerState),
        (15, OptimizerState),
    ];
    assert_eq!(categories(memory).into_iter().collect::<Vec<_>>(), expected);
    let unknown = without_its_beginning(false).import();
    assert_eq!(categories(&unknown.ranks[0].data.memory)[&10], Other, "it may be the optimizer's as well");
}

#[test]
fn a_snapshot_without_a_history_is_a_moment() {
    let mut s = Snapshot::new();
    s.segment(0, 1000, &[(0, 300, "active_allocated", &[]), (500, 200, "active_allocated", FORWARD)]);
    let imported = s.import();
    let replay = replay(&imported.ranks[0].data.memory);
    assert_eq!((replay.peak, replay.end, replay.reserved), (524, 524, 1000));
    assert!(imported.ranks[0].loss.is_none());
}

#[test]
fn segments_that_grow_and_shrink_in_parts_add_up() {
    let mut s = Snapshot::new();
    s.event("segment_unmap", 60, 20, &[]);
    s.event("segment_alloc", 1000, 500, &[]);
    s.event("segment_map", 100, 50, &[]);
    s.event("segment_map", 150, 50, &[]);
    s.event("segment_unmap", 120, 40, &[]);
    s.event("segment_free", 1000, 500, &[]);
    s.segment(0, 60, &[]);
    s.segment(100, 20, &[]);
    s.segment(160, 40, &[]);
    let replay = replay(&s.import().ranks[0].data.memory);
    assert_eq!((replay.reserved, replay.reserved_peak), (120, 60 + 500 + 100));
}

#[test]
fn each_device_with_memory_is_a_rank() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, FORWARD);
    s.next_device();
    s.next_device();
    s.alloc(2, 16, FORWARD);
    let imported = s.import();
    let told = imported.ranks.iter().map(|rank| (rank.info.rank.0, replay(&rank.data.memory).end));
    assert_eq!(told.collect::<Vec<_>>(), [(0, 512), (1, 512)]);
    assert_eq!(imported.ranks[1].info.collector.device, Some(2));
}

#[test]
fn without_times_order_is_time() {
    let mut s = Snapshot::without_times();
    s.alloc(1, 8, FORWARD);
    s.free(1, 8, FORWARD);
    s.annotate("START", "ProfilerStep#1");
    s.annotate("END", "ProfilerStep#1");
    let imported = s.import();
    let rank = &imported.ranks[0];
    assert_eq!(rank.data.memory.rows().map(|event| event.time_ns.0).collect::<Vec<_>>(), [0, 1]);
    assert!(rank.info.clock.snapshots.is_empty());
    assert!(rank.data.spans.is_empty(), "a time of day means nothing beside an order");
}

#[test]
fn steps_and_other_annotations_are_read() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, FORWARD);
    s.annotate("START", "ProfilerStep#7");
    s.alloc(2, 8, FORWARD);
    s.annotate("START", "Optimizer.step#AdamW.step");
    s.annotate("END", "Optimizer.step#AdamW.step");
    s.annotate("START", "nccl:all_reduce");
    s.alloc(3, 8, FORWARD);
    s.annotate("END", "nccl:all_reduce");
    s.annotate("END", "ProfilerStep#7");
    s.event("oom", 0, 1 << 40, FORWARD);
    s.alloc(4, 8, FORWARD);
    let imported = s.import();
    let rank = &imported.ranks[0];
    let steps: Vec<_> = rank.data.memory.rows().map(|event| event.step).collect();
    assert_eq!(steps, [None, Some(Step(7)), Some(Step(7)), None]);
    let spans: Vec<_> =
        rank.data.spans.rows().map(|span| (span.kind, rank.data.names.get(span.name).unwrap())).collect();
    let expected = [
        (SpanKind::Step, "ProfilerStep#7"),
        (SpanKind::Phase, "Optimizer.step#AdamW.step"),
        (SpanKind::Range, "nccl:all_reduce"),
    ];
    assert_eq!(spans, expected);
    assert_eq!(rank.data.spans.row(0).interval(), (Nanos(1_000_001_000), Nanos(1_000_003_000)));
    let shortage = rank.info.collector.out_of_memory.as_ref().unwrap();
    assert_eq!((shortage.times, shortage.requested_bytes, shortage.free_bytes), (1, 1 << 40, None));
    assert_eq!(shortage.expandable_segments_would_do, None, "what the device had left is not known");
    assert_eq!(imported.info.started, "1970-01-01T00:00:01.000Z");
}

/// The first step ran out of memory: its batch was never given back, as parameters are not.
#[test]
fn a_batch_that_stays_is_no_parameter() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, &[("at::empty", "??"), ("main", "train.py")]);
    s.alloc(2, 8, &[("at::_to_copy", "??"), ("batch_generator", "train.py"), ("main", "train.py")]);
    s.alloc(3, 8, &[("at::empty", "??"), ("freqs", "model.py"), ("batch_generator", "train.py")]);
    s.alloc(4, 8, FORWARD);
    let found = categories(&s.import().ranks[0].data.memory);
    assert_eq!((found[&1], found[&2], found[&3], found[&4]), (Parameters, Inputs, Parameters, Activations));
}

#[test]
fn a_lost_free_does_not_confuse_what_follows() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, FORWARD);
    s.alloc(1, 9, FORWARD);
    s.free(1, 9, FORWARD);
    s.free(1, 9, FORWARD);
    let events = &s.import().ranks[0].data.memory;
    assert_eq!(events.len(), 4, "whoever plays them counts what does not match");
    assert_eq!(categories(events)[&1], Workspace);
}
