use stepscope_analyzer::{Selection, StepRange, analyze};
use stepscope_traces::{
    CollectorSource, FIRST_NAME, NameId, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Step, Stream,
    Window,
};

const STEPS: i64 = 10;
const KERNELS: i64 = 8;

/// A program that says nothing of its steps: in each, kernels of other names, one every 100 ns.
fn recorded(directory: &std::path::Path) -> Run {
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
