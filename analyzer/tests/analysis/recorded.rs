use std::{collections::BTreeSet, path::Path};

use stepscope_analyzer::{Selection, StepRange, analyze};
use stepscope_plan::{Axis, Schedule};
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

/// A Megatron job in which PyTorch's hooks failed, and nothing names a group or a micro-batch.
#[test]
fn a_pipeline_of_somebody_elses_is_told_from_what_it_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures/runs/megatron-tp2-pp2");
    let run = Run::open(&path).unwrap();
    let analysis = analyze(&run, &Selection::default(), &|_| ()).unwrap();
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
