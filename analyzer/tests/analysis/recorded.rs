use std::{collections::BTreeSet, path::Path};

use stepscope_analyzer::{Analysis, ModelFrom, Selection, StepRange, analyze};
use stepscope_plan::{Axis, Schedule, Zero};
use stepscope_traces::{
    CollectorSource, FIRST_NAME, NameId, Nanos, Phase, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Step,
    Stream, Window,
};

const STEPS: i64 = 10;
const KERNELS: i64 = 8;

/// A program that says nothing of its steps: in each, kernels of other names, one every 100 ns.
fn recorded(directory: &Path) -> Run {
    RunInfo::of_this_process("recorded").create(directory).unwrap();
    let mut info = RankInfo::of_this_process(Rank(0));
    info.collector.source = Some(CollectorSource::Injected);
    let mut writer = RankWriter::create(directory, info).unwrap();
    let names: Vec<NameId> = (0..KERNELS as u32).map(|kernel| NameId(FIRST_NAME.0 + kernel)).collect();
    names.iter().for_each(|name| writer.push_name(*name, &format!("kernel {}", name.0)).unwrap());
    for step in 0..STEPS {
        for (name, place) in names.iter().zip(0..) {
            let span = Span::new(SpanKind::Kernel, *name, Nanos(step * 1000 + place * 100), Nanos(90));
            writer.push_span(&Span { stream: Some(Stream(7)), ..span }).unwrap();
        }
    }
    writer.finish().unwrap();
    Run::open(directory).unwrap()
}

#[test]
fn inferred_steps_can_be_chosen_as_any() {
    let directory = tempfile::tempdir().unwrap();
    let run = recorded(&directory.path().join("run"));
    let all = analyze(&run, &Selection::default(), &|_| ()).unwrap();
    assert_eq!((all.steps.len() as i64, all.ranks[0].kernel_count as i64), (STEPS, STEPS * KERNELS));
    assert!(all.step_time.as_ref().is_some_and(|time| time.inferred));
    let steps = StepRange { from: Some(Step(2)), to: Some(Step(4)) }.into();
    let two = analyze(&run, &Selection { steps, ..Selection::default() }, &|_| ()).unwrap();
    assert_eq!((&two.steps, &two.ranks), (&all.steps, &all.ranks), "these are of the whole recording");
    assert_eq!((two.counted[0].kernel_count as i64, two.counted[0].partition.span_ns), (2 * KERNELS, 2000));
    assert!(two.kernels.iter().all(|kernel| (kernel.count, kernel.total_ns) == (2, 180)));
}

#[test]
fn a_window_numbers_them_as_the_whole_does() {
    let directory = tempfile::tempdir().unwrap();
    let run = recorded(&directory.path().join("run"));
    let window = Some(Window { from: Nanos(5000), to: Nanos(7000) });
    let part = analyze(&run, &Selection { window, ..Selection::default() }, &|_| ()).unwrap();
    assert_eq!(part.steps.iter().map(|step| step.step).collect::<Vec<_>>(), [Step(5), Step(6)]);
}

fn fixture(name: &str) -> Analysis {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures/runs");
    analyze(&Run::open(&runs.join(name)).unwrap(), &Selection::default(), &|_| ()).unwrap()
}

/// What the scripts of these jobs say themselves.
#[test]
fn jobs_of_other_frameworks_have_a_layout_a_model_and_tokens() {
    for (name, [dp, tp, pp], zero, flops_per_token, tokens) in [
        ("fsdp2", [4, 1, 1], Zero::Three, 838_336_512.0, Some(16_384.0)),
        ("torchtitan", [2, 2, 1], Zero::Three, 71_565_312.0, Some(32_768.0)),
        ("deepspeed-zero2", [4, 1, 1], Zero::Two, 901_251_072.0, Some(16_384.0)),
        ("ddp-after-profiler", [4, 1, 1], Zero::Off, 725_090_304.0, Some(16_384.0)),
        ("megatron-interleaved", [1, 2, 2], Zero::Off, 901_251_072.0, None),
        ("pipelining-interleaved", [1, 1, 4], Zero::Off, 1_480_065_024.0, None),
    ] {
        let analysis = fixture(name);
        let layout = analysis.run.layout.unwrap();
        assert_eq!(([layout.dp, layout.tp, layout.pp], layout.zero, layout.inferred), ([dp, tp, pp], Some(zero), true));
        let mfu = analysis.mfu.unwrap();
        assert_eq!((mfu.flops_per_token, mfu.model_from), (Some(flops_per_token), ModelFrom::Program), "{name}");
        assert!(tokens.is_none() || analysis.steps.iter().all(|step| step.tokens == tokens), "{name}");
        assert!(analysis.run.failed_sources.is_empty() && !analysis.step_time.unwrap().inferred, "{name}");
        assert!(analysis.collectives.iter().all(|figures| figures.axis.is_some()), "{name}");
        if let Some(pipeline) = analysis.pipeline {
            assert_eq!((pipeline.stages, pipeline.micro_batches, layout.chunks), (pp, 8, Some(2)), "{name}");
            assert_eq!((pipeline.schedule, pipeline.inferred), (Schedule::Interleaved, true), "{name}");
            let ideal = (pp - 1) as f64 / (8.0 * 2.0 + (pp - 1) as f64);
            assert!((pipeline.ideal_bubble - ideal).abs() < 1e-9, "{name}");
        }
    }
}

/// What was launched after PyTorch's profiler had run is known by records of calls alone.
#[test]
fn what_is_recorded_after_the_programs_own_profiler_has_phases_and_groups() {
    let analysis = fixture("ddp-after-profiler");
    assert_eq!(analysis.run.paused.as_ref().map(|paused| paused.count), Some(1));
    for rank in &analysis.counted {
        let all: i64 = rank.breakdown.phases.iter().map(|of| of.share.compute_ns).sum();
        let share = |phase: Option<Phase>| {
            let of = rank.breakdown.phases.iter().find(|of| of.phase == phase);
            of.map_or(0.0, |of| of.share.compute_ns as f64 / all as f64)
        };
        // As without the profiler: a third is forward, a few percent are the optimizer's.
        assert_eq!(share(None), 0.0);
        assert!((0.25..0.35).contains(&share(Some(Phase::Forward))), "{}", share(Some(Phase::Forward)));
        assert!((0.05..0.10).contains(&share(Some(Phase::Optimizer))), "{}", share(Some(Phase::Optimizer)));
    }
}

#[test]
fn steps_that_evaluate_are_told_apart() {
    let analysis = fixture("huggingface-evaluation");
    let includes: Vec<(i32, &[Phase])> =
        analysis.steps.iter().map(|step| (step.step.0, step.includes.as_slice())).collect();
    assert_eq!(includes, [(9, [].as_slice()), (10, &[Phase::Evaluation]), (11, &[])]);
    let mfu = analysis.mfu.as_ref().unwrap();
    let training = analysis.steps.iter().find(|step| step.step == Step(11)).unwrap();
    assert_eq!(mfu.training_value, training.mfu, "of the two that count, the other one evaluates");
    assert!(mfu.value < mfu.training_value);
}

/// Of an H200 that four ranks share: what nobody counted is next to nothing, and is not nothing by definition.
#[test]
fn the_ledger_of_a_recorded_job_closes() {
    for memory in &fixture("torchtitan").memory {
        let ledger = memory.ledger.as_ref().unwrap();
        let libraries: Vec<(&str, u64)> =
            ledger.libraries.iter().map(|told| (told.library.spelled(), told.bytes >> 20)).collect();
        assert_eq!(libraries, [("NCCL", 740), ("cuBLAS", 128), ("cuDNN", 0)]);
        let beside: i64 = ledger.lines().iter().map(|(_, bytes)| *bytes).sum();
        assert_eq!(ledger.allocated_bytes.cast_signed() + beside, ledger.device_used_bytes.cast_signed());
        let residual = ledger.residual_bytes.unsigned_abs();
        assert!(residual > 0 && 50 * residual < ledger.device_used_bytes, "{ledger:?}");
    }
}

/// All of a step is inside of the optimizer's, and is none of it.
#[test]
fn passes_in_a_closure_are_not_the_optimizers() {
    let analysis = fixture("lightning");
    assert!(analysis.run.layout.is_none() && analysis.steps.iter().all(|step| step.tokens == Some(8192.0)));
    assert_eq!(analysis.mfu.as_ref().unwrap().flops_per_token, Some(901_251_072.0));
    let phases = &analysis.counted[0].breakdown.phases;
    let time = |phase: Phase| phases.iter().find(|of| of.phase == Some(phase)).map_or(0, |of| of.share.compute_ns);
    let [forward, backward, optimizer] = [Phase::Forward, Phase::Backward, Phase::Optimizer].map(time);
    assert!(backward > forward && forward > 2 * optimizer && optimizer > 0, "{forward} {backward} {optimizer}");
}

/// A Megatron job in which PyTorch's hooks failed, and nothing names a group or a micro-batch.
#[test]
fn a_pipeline_of_somebody_elses_is_told_from_what_it_does() {
    let analysis = fixture("megatron-tp2-pp2");
    let time = analysis.step_time.as_ref().unwrap();
    assert_eq!((time.inferred, analysis.window.steps), (true, Some([Step(1), Step(3)])));
    let layout = analysis.run.layout.unwrap();
    assert_eq!((layout.dp, layout.tp, layout.pp, layout.inferred), (1, 2, 2, true));
    assert_eq!((layout.schedule, layout.micro_batches), (Some(Schedule::OneForwardOneBackward), Some(8)));
    let pipeline = analysis.pipeline.as_ref().unwrap();
    assert_eq!((pipeline.stages, pipeline.micro_batches, pipeline.inferred), (2, 8, true));
    let stages: Vec<(u64, u32)> = pipeline.per_stage.iter().map(|stage| (stage.stage, stage.rank.0)).collect();
    assert_eq!(stages, [(0, 0), (0, 1), (1, 2), (1, 3)]);
    let bubble = pipeline.bubble.unwrap();
    assert!((0.1..0.25).contains(&bubble), "{bubble}");
    let axes: BTreeSet<(SpanKind, Option<Axis>)> =
        analysis.collectives.iter().map(|figures| (figures.operation, figures.axis)).collect();
    let expected = [
        (SpanKind::AllReduce, Some(Axis::Tensor)),
        (SpanKind::AllReduce, Some(Axis::World)),
        (SpanKind::Send, Some(Axis::Pipeline)),
        (SpanKind::Receive, Some(Axis::Pipeline)),
        (SpanKind::Communication, Some(Axis::Pipeline)),
    ];
    assert_eq!(axes, BTreeSet::from(expected));
    let phases = &analysis.counted[0].breakdown.phases;
    let share = |phase: Phase| phases.iter().find(|of| of.phase == Some(phase)).map_or(0, |of| of.share.compute_ns);
    assert!(share(Phase::Backward) > share(Phase::Forward) && share(Phase::Forward) > 5 * share(Phase::Optimizer));
}
