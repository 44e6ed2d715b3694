use proptest::prelude::*;
use stepscope_plan::Axis;
use stepscope_traces::{
    Group, GroupInfo, MemoryCategory, MemoryEvent, MemoryOperation, MicroBatch, NameId, Nanos, Phase, Rank, RunInfo,
    Span, SpanKind, Step, Stream,
};

use super::pairs::compared;
use crate::support::{Hand, write};

const NAMES: [&str; 6] = ["matmul", "rms_norm", "gemm_other_tile", "adamw", "something", "attention"];
const KINDS: [SpanKind; 8] = [
    SpanKind::Kernel,
    SpanKind::Kernel,
    SpanKind::Kernel,
    SpanKind::AllReduce,
    SpanKind::Send,
    SpanKind::Receive,
    SpanKind::Copy,
    SpanKind::Set,
];
const PHASES: [Option<Phase>; 5] =
    [None, Some(Phase::Forward), Some(Phase::Backward), Some(Phase::Recompute), Some(Phase::Optimizer)];

/// Kind, name, phase, stream, start, length and micro-batch.
type AnySpan = (usize, usize, usize, u32, i64, i64, i32);
/// When it is taken, for how long, how large it is, and what for.
type AnyBlock = (i64, i64, u64, usize);

/// What a rank did.
type AnyRank = (Vec<AnySpan>, Vec<AnyBlock>);
/// Ranks, how many steps they made, and whether they are the stages of a pipeline.
type AnyRun = (Vec<AnyRank>, i32, bool);

fn any_rank() -> impl Strategy<Value = AnyRank> {
    let span = (0..KINDS.len(), 0..NAMES.len(), 0..PHASES.len(), 0..3_u32, 0..5_000_i64, 0..900_i64, 0..3_i32);
    let block = (0..5_000_i64, 1..2_000_i64, 1..1_000_000_u64, 0..MemoryCategory::ALL.len());
    (prop::collection::vec(span, 0..40), prop::collection::vec(block, 0..12))
}

fn hand((spans, blocks): &AnyRank, steps: i32) -> Hand {
    let mut hand = Hand::default();
    for (kind, name, phase, stream, start, length, micro_batch) in spans {
        let step = (steps > 0).then(|| Step((start * i64::from(steps) / 5_000) as i32));
        let span = Span::new(KINDS[*kind], NameId(0), Nanos(*start), Nanos(*length));
        let group = KINDS[*kind].is_communication().then_some(Group(stream % 2));
        let (stream, phase, micro_batch) = (Some(Stream(*stream)), PHASES[*phase], Some(MicroBatch(*micro_batch)));
        hand.add(NAMES[*name], Span { step, stream, phase, micro_batch, group, ..span });
    }
    for (address, (time, life, bytes, category)) in (1..).zip(blocks) {
        let alloc = MemoryEvent {
            time_ns: Nanos(*time),
            op: MemoryOperation::Alloc,
            address,
            bytes: Some(*bytes),
            category: Some(MemoryCategory::ALL[*category]),
            step: None,
            phase: None,
            layer: None,
            pool: None,
            site: None,
        };
        hand.memory.push(alloc);
        let free = MemoryEvent {
            time_ns: Nanos(time + life),
            op: MemoryOperation::Free,
            bytes: None,
            category: None,
            ..alloc
        };
        hand.memory.push(free);
    }
    hand
}

fn any_run() -> impl Strategy<Value = AnyRun> {
    (prop::collection::vec(any_rank(), 1..4), 0..6_i32, any::<bool>())
}

fn written((ranks, steps, pipeline): &AnyRun) -> tempfile::TempDir {
    let mut info = RunInfo::of_this_process("random");
    let all: Vec<Rank> = (0..ranks.len() as u32).map(Rank).collect();
    let group = |number: u32, axis: Axis| GroupInfo { group: Group(number), axis, ranks: all.clone() };
    info.groups = vec![group(0, Axis::Data), group(1, Axis::Pipeline)];
    if *pipeline {
        let pp = ranks.len() as u64;
        info.layout = Some(stepscope_plan::ParallelLayout { pp, micro_batches: 3, ..Default::default() });
    }
    write(info, &ranks.iter().map(|rank| hand(rank, *steps)).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn comparisons_of_any_runs_add_up(base in any_run(), other in any_run()) {
        let (base, other) = (written(&base), written(&other));
        compared(&base.path().join("run"), &other.path().join("run"));
    }
}
