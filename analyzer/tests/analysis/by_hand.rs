use stepscope_analyzer::{Partition, Selection, StepRange};
use stepscope_plan::{Axis, Convention, ModelShape, ParallelLayout, Schedule};
use stepscope_traces::{
    Counter, CounterSample, Family, Group, GroupInfo, Nanos, Phase, Rank, RunInfo, Sequence, Span, SpanKind, Step,
};

use crate::support::{Hand, analyzed, span, within, write};

/// One rank, two steps, in microseconds:
///
/// ```text
/// 0        10  12   15   20   24 25   30        40        50
/// │ matmul │  │ matmul    │                     │ adamw   │
///                  │ all_reduce │
///                              │ copy │
/// ```
fn one_rank() -> Hand {
    let mut hand = Hand::default();
    let reduce = Span {
        bytes: Some(1000),
        group: Some(Group(7)),
        sequence: Some(Sequence(0)),
        ..within(span(SpanKind::AllReduce, 15, 25), 0, 0, Phase::Backward, 0)
    };
    let flops = |span: Span, flops| Span { flops: Some(flops), ..span };
    hand.add("matmul", flops(within(span(SpanKind::Kernel, 0, 10), 0, 0, Phase::Forward, 0), 40_000))
        .add("matmul", flops(within(span(SpanKind::Kernel, 12, 20), 0, 0, Phase::Backward, 0), 50_000))
        .add("adamw", within(span(SpanKind::Kernel, 40, 50), 1, 0, Phase::Optimizer, 1))
        .add("all_reduce", reduce)
        .add("copy", within(span(SpanKind::Copy, 24, 30), 0, 0, Phase::Backward, 0))
        .add("step", within(span(SpanKind::Step, 0, 35), 0, 0, Phase::Forward, 0))
        .add("step", within(span(SpanKind::Step, 38, 52), 1, 0, Phase::Forward, 0));
    let count = |counter: Counter, at: i64, value: f64| CounterSample {
        time_ns: Nanos(1000 * at),
        counter: counter.id(),
        value,
    };
    hand.counters = vec![
        count(Counter::Loss, 35, 2.5),
        count(Counter::Tokens, 35, 80.0),
        count(Counter::Loss, 51, 2.25),
        count(Counter::Tokens, 51, 80.0),
    ];
    hand
}

fn run_info() -> RunInfo {
    let mut info = RunInfo::of_this_process("by hand");
    info.world_size = Some(1);
    info.model = Some(ModelShape::preset("tiny").unwrap());
    info.layout = Some(ParallelLayout { sequence_length: 64, ..ParallelLayout::default() });
    info.groups = vec![GroupInfo { group: Group(7), axis: Axis::Data, ranks: vec![Rank(0)] }];
    info
}

fn microseconds(figures: [i64; 8], overlap: Option<f64>) -> Partition {
    let [span_ns, compute_ns, communication_ns, overlapped, exposed, copy_ns, exposed_copy_ns, idle_ns] =
        figures.map(|figure| 1000 * figure);
    Partition {
        span_ns,
        compute_ns,
        communication_ns,
        overlapped_communication_ns: overlapped,
        exposed_communication_ns: exposed,
        copy_ns,
        exposed_copy_ns,
        idle_ns,
        overlap,
    }
}

#[test]
fn time_of_one_rank() {
    let analysis = analyzed(&write(run_info(), &[one_rank()]), &Selection::default());
    let rank = &analysis.ranks[0];
    // Of the 50: matmuls 10 and 8 and the optimizer 10; five of ten of the reduction hidden, five of six of the copy
    // alone; idle 10..12 and 30..40.
    assert_eq!(rank.partition, microseconds([50, 28, 10, 5, 5, 6, 5, 12], Some(0.5)));
    assert_eq!(rank.kernel_count, 4, "the reduction included");
    let steps: Vec<_> = analysis.steps.iter().map(|step| (step.step, step.start_ns, step.duration_ns)).collect();
    assert_eq!(steps, [(Step(0), 0, 40_000), (Step(1), 40_000, 10_000)]);
    assert_eq!(analysis.steps[0].partition, microseconds([40, 18, 10, 5, 5, 6, 5, 12], Some(0.5)));
    assert_eq!(analysis.steps[1].partition, microseconds([10, 10, 0, 0, 0, 0, 0, 0], None));
    let losses: Vec<_> = analysis.steps.iter().map(|step| step.loss).collect();
    assert_eq!(losses, [Some(2.5), Some(2.25)]);

    let phases: Vec<_> = rank.breakdown.phases.iter().map(|phase| (phase.phase, phase.share.compute_ns)).collect();
    let expected = [(Phase::Forward, 10_000), (Phase::Backward, 8_000), (Phase::Optimizer, 10_000)];
    assert_eq!(phases, expected.map(|(phase, time)| (Some(phase), time)));
    let axis = &rank.breakdown.axes[0];
    assert_eq!((axis.axis, axis.communication_ns, axis.overlapped_ns), (Some(Axis::Data), 10_000, 5_000));

    let names: Vec<_> =
        analysis.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.count, kernel.total_ns)).collect();
    assert_eq!(names, [("matmul", 2, 18_000), ("adamw", 1, 10_000), ("all_reduce", 1, 10_000), ("copy", 1, 6_000)]);
    let matmul = &analysis.kernels[0];
    assert_eq!((matmul.family, matmul.mean_ns, matmul.share), (Family::Matmul, 9000.0, 18.0 / 44.0));
    assert_eq!(matmul.rates.flops_per_second, Some(90_000.0 / 18e-6));
    assert_eq!(analysis.run.world_size, 1);
    assert_eq!(analysis.mfu, None, "no peak is known");
    assert_eq!(analysis.pipeline, None);
}

#[test]
fn mfu_of_one_rank() {
    let run = write(run_info(), &[one_rank()]);
    let analysis = analyzed(&run, &Selection { peak_flops: Some(1e15), ..Selection::default() });
    let flops = ModelShape::preset("tiny").unwrap().flops_per_token(Convention::Model, 64);
    // 80 tokens in 40 µs, and again in 10; with so few steps all count.
    let step = &analysis.steps[0];
    assert_eq!(step.tokens_per_second, Some(80.0 / 40e-6));
    assert!((step.mfu.unwrap() - flops * 2e6 / 1e15).abs() < 1e-12);
    let mfu = analysis.mfu.unwrap();
    assert_eq!((mfu.convention, mfu.peak_flops, mfu.flops_per_token), (Convention::Model, 1e15, Some(flops)));
    assert!((mfu.tokens_per_second.unwrap() - 160.0 / 50e-6).abs() < 1e-3);
    assert!((mfu.value.unwrap() - flops * 3.2e6 / 1e15).abs() < 1e-12);
    assert_eq!(mfu.hfu, mfu.value, "nothing is computed again");
    assert_eq!(mfu.by_convention.len(), 5);
    assert!(mfu.by_convention["causal"] < mfu.by_convention["model"]);
}

#[test]
fn a_part_of_the_steps() {
    let run = write(run_info(), &[one_rank()]);
    let steps = StepRange { from: Some(Step(1)), to: None }.into();
    let analysis = analyzed(&run, &Selection { steps, ..Selection::default() });
    assert_eq!(analysis.counted[0].partition, microseconds([10, 10, 0, 0, 0, 0, 0, 0], None));
    assert_eq!(analysis.kernels.len(), 1);
    assert_eq!(analysis.window.steps, Some([Step(1), Step(1)]));
    let whole = analyzed(&run, &Selection::default());
    assert_eq!((&analysis.ranks, &analysis.steps), (&whole.ranks, &whole.steps), "these are of the whole recording");
}

/// As below, without a word of what is worked on: only kernels count, and the two microseconds between two of them are
/// idle too.
#[test]
fn bubbles_of_stages_that_say_nothing_are_inferred() {
    let mut info = RunInfo::of_this_process("pipeline");
    info.world_size = Some(2);
    info.layout = Some(ParallelLayout { pp: 2, micro_batches: 2, ..ParallelLayout::default() });
    let stage = |kernels: &[(i64, i64)]| {
        let mut hand = Hand::default();
        for &(start, end) in kernels {
            hand.add("kernel", Span { step: Some(Step(0)), ..span(SpanKind::Kernel, start, end) });
        }
        hand
    };
    let (first, second) = (stage(&[(0, 10), (12, 20), (40, 80)]), stage(&[(10, 60)]));
    let pipeline = analyzed(&write(info, &[first, second]), &Selection::default()).pipeline.unwrap();
    assert!(pipeline.inferred);
    // Of 80 each: 22 and 30 idle.
    assert_eq!(pipeline.bubble, Some(52.0 / 160.0));
    assert_eq!((pipeline.per_stage[0].work_ns, pipeline.per_stage[1].work_ns), (58_000, 50_000));
    assert_eq!(pipeline.balanced_bubble, None, "nothing is known of passes");
}

/// Two stages, two micro-batches, all forwards first, in microseconds:
///
/// ```text
/// stage 0  │ F0 │ F1 │         │  B0    │  B1    │
/// stage 1       │ F0 │ F1 │ B0 │  B1    │
///          0   10   20   30   40       60       80
/// ```
#[test]
fn bubbles_of_two_stages() {
    let mut info = RunInfo::of_this_process("pipeline");
    info.world_size = Some(2);
    let layout = ParallelLayout { pp: 2, micro_batches: 2, schedule: Schedule::Gpipe, ..ParallelLayout::default() };
    info.layout = Some(layout);
    let stage = |work: &[(Phase, i32, i64, i64)]| {
        let mut hand = Hand::default();
        for &(phase, micro_batch, start, end) in work {
            // Two kernels with a gap between them are one piece of work.
            let middle = (start + end) / 2;
            hand.add("one", within(span(SpanKind::Kernel, start, middle - 1), 0, micro_batch, phase, 0));
            hand.add("two", within(span(SpanKind::Kernel, middle + 1, end), 0, micro_batch, phase, 1));
        }
        hand
    };
    use Phase::{Backward, Forward};
    let first = stage(&[(Forward, 0, 0, 10), (Forward, 1, 10, 20), (Backward, 0, 40, 60), (Backward, 1, 60, 80)]);
    let second = stage(&[(Forward, 0, 10, 20), (Forward, 1, 20, 30), (Backward, 0, 30, 40), (Backward, 1, 40, 60)]);
    let analysis = analyzed(&write(info, &[first, second]), &Selection::default());
    let pipeline = analysis.pipeline.unwrap();
    assert_eq!((pipeline.stages, pipeline.micro_batches, pipeline.schedule), (2, 2, Schedule::Gpipe));
    assert_eq!(pipeline.bubble, Some(50.0 / 160.0));
    assert_eq!(pipeline.ideal_bubble, 1.0 / 3.0);
    let parts = |stage: usize| {
        let figures = &pipeline.per_stage[stage];
        (figures.bubble, figures.warm_up_ns, figures.steady_ns, figures.cool_down_ns, figures.work_ns)
    };
    assert_eq!(parts(0), (Some(0.25), Some(0), Some(20_000), Some(0), 60_000));
    assert_eq!(parts(1), (Some(0.375), Some(10_000), Some(0), Some(20_000), 50_000));
    assert_eq!(pipeline.slowest_stage, Some(0));
    assert_eq!(pipeline.per_step.len(), 1);
    assert!(!pipeline.inferred);
    // Forwards of 10 and backwards of 17.5 on both: the ideal again.
    assert!((pipeline.balanced_bubble.unwrap() - 1.0 / 3.0).abs() < 1e-9);
}
