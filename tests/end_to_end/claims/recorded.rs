use std::path::Path;

use stepscope_traces::{
    Counter, CounterSample, FIRST_NAME, Group, Layer, MemoryCategory, MemoryEvent, MemoryOperation, MicroBatch, NameId,
    Nanos, Phase, Pool, Rank, RankInfo, RankWriter, RunInfo, Sequence, Span, SpanKind, Stage, Step, Stream,
};
use tempfile::TempDir;

use super::{SAMPLE, can_be_looked_at};

/// How many spans there are: enough that one of anything large for each of them would not fit.
const SPANS: u32 = 200_000;

fn run(directory: &Path, write: impl Fn(u32, &mut RankWriter)) {
    let path = directory.join("run");
    RunInfo::of_this_process("hostile").create(&path).unwrap();
    for rank in 0..2 {
        let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(rank))).unwrap();
        writer.push_name(FIRST_NAME, "kernel").unwrap();
        write(rank, &mut writer);
        writer.finish().unwrap();
    }
}

fn looked_at(what: &str, write: impl Fn(u32, &mut RankWriter)) {
    let directory = TempDir::new().unwrap();
    run(directory.path(), write);
    can_be_looked_at(what, "run", SAMPLE, directory.path());
}

fn kernel(index: u32) -> Span {
    let start = Nanos(1_000_000 + i64::from(index) * 1000);
    Span { stream: Some(Stream(0)), step: Some(Step(0)), ..Span::new(SpanKind::Kernel, FIRST_NAME, start, Nanos(900)) }
}

#[test]
fn every_span_may_be_on_a_stream_of_its_own() {
    looked_at("streams", |_, writer| {
        for index in 0..SPANS {
            writer.push_span(&Span { stream: Some(Stream(index)), ..kernel(index) }).unwrap();
        }
    });
}

#[test]
fn every_span_may_be_of_a_step_layer_and_group_of_its_own() {
    looked_at("steps", |_, writer| {
        for index in 0..SPANS / 20 {
            let spread = i32::MIN + (index * 20 * 21_000) as i32;
            let span = Span {
                step: Some(Step(spread)),
                layer: Some(Layer(spread)),
                micro_batch: Some(MicroBatch(i32::MAX)),
                stage: Some(Stage(i16::MIN)),
                phase: Some([Phase::Forward, Phase::Backward][index as usize % 2]),
                group: Some(Group(u32::MAX - index)),
                sequence: Some(Sequence(u64::MAX - u64::from(index))),
                bytes: Some(u64::MAX),
                flops: Some(u64::MAX),
                ..kernel(index)
            };
            writer.push_span(&span).unwrap();
            writer.push_span(&Span { kind: SpanKind::AllReduce, name: NameId(u32::MAX), ..span }).unwrap();
        }
    });
}

/// As a pipeline without a layout would say it: stages are inferred, and so is how many micro-batches there are.
#[test]
fn a_micro_batch_may_have_any_number() {
    looked_at("micro-batches", |rank, writer| {
        for step in 0..4 {
            for (index, phase) in [Phase::Forward, Phase::Backward].into_iter().enumerate() {
                let start = Nanos(1_000_000 + step * 1_000_000 + index as i64 * 400_000 + i64::from(rank) * 100_000);
                let span = Span {
                    step: Some(Step(step as i32)),
                    micro_batch: Some(MicroBatch(i32::MAX)),
                    phase: Some(phase),
                    stream: Some(Stream(0)),
                    ..Span::new(SpanKind::Kernel, FIRST_NAME, start, Nanos(100_000))
                };
                writer.push_span(&span).unwrap();
                let kind = if rank == 0 { SpanKind::Send } else { SpanKind::Receive };
                writer.push_span(&Span { kind, stream: Some(Stream(1)), ..span }).unwrap();
            }
        }
    });
}

#[test]
fn times_may_be_anything() {
    looked_at("times", |_, writer| {
        for (index, start) in (0..).zip([i64::MIN, -1, 0, 1, i64::MAX / 2, i64::MAX - 1, i64::MAX]) {
            for duration in [i64::MIN, -1, 0, 1, i64::MAX / 2, i64::MAX] {
                for kind in [SpanKind::Kernel, SpanKind::Step, SpanKind::AllReduce] {
                    let span = Span { kind, step: Some(Step(index)), ..kernel(0) };
                    writer.push_span(&Span { start_ns: Nanos(start), duration_ns: Nanos(duration), ..span }).unwrap();
                }
            }
        }
    });
    looked_at("a hundred years", |_, writer| {
        for year in 0..100 {
            let start = Nanos(year * 365 * 86_400 * 1_000_000_000);
            writer.push_span(&Span { start_ns: start, step: Some(Step(year as i32)), ..kernel(0) }).unwrap();
        }
    });
}

#[test]
fn memory_and_counters_may_be_anything() {
    looked_at("memory", |_, writer| {
        for index in 0..SPANS / 10 {
            let event = MemoryEvent {
                time_ns: Nanos(1_000_000 + i64::from(index) * 1000),
                op: MemoryOperation::ALL[index as usize % MemoryOperation::ALL.len()],
                address: u64::from(index % 1000) << 54,
                bytes: Some(u64::MAX - u64::from(index)),
                category: Some(MemoryCategory::ALL[index as usize % MemoryCategory::ALL.len()]),
                step: Some(Step(i32::MAX - index as i32)),
                phase: None,
                layer: Some(Layer(i32::MIN + index as i32)),
                pool: Some(Pool(index)),
                site: None,
            };
            writer.push_memory(&event).unwrap();
            writer.push_span(&kernel(index)).unwrap();
            for (counter, value) in [(Counter::Loss, f64::NAN), (Counter::Tokens, f64::MAX), (Counter::Loss, -f64::MAX)]
            {
                let (time_ns, counter) = (event.time_ns, counter.id());
                writer.push_counter(&CounterSample { time_ns, counter, value }).unwrap();
            }
        }
    });
}
