use std::{fs, path::Path};

use stepscope_analyzer::{AnalysisError, Partition, Selection, StepRange, analyze};
use stepscope_traces::{
    Counter, CounterSample, Nanos, Phase, RECORDED_WINDOW, Rank, Run, RunInfo, Span, SpanKind, State, Step,
    synthetic::Recipe,
};
use tempfile::TempDir;

use crate::support::{Hand, analyzed, assert_adds_up, span, within, write};

fn one(hand: Hand) -> TempDir {
    write(RunInfo::of_this_process("odd"), &[hand])
}

#[test]
fn a_run_without_ranks_is_an_error() {
    let run = write(RunInfo::of_this_process("empty"), &[]);
    let run = Run::open(&run.path().join("run")).unwrap();
    let error = analyze(&run, &Selection::default(), &|_| {}).unwrap_err().to_string();
    assert!(error.contains("has no ranks"), "{error}");
}

#[test]
fn a_rank_without_events_has_figures_of_nothing() {
    let analysis = analyzed(&one(Hand::default()), &Selection::default());
    assert_eq!((analysis.ranks[0].partition.span_ns, analysis.ranks[0].kernel_count), (0, 0));
    assert!(analysis.steps.is_empty() && analysis.kernels.is_empty() && analysis.memory.is_empty());
}

#[test]
fn kernels_without_steps_are_one_window() {
    let mut hand = Hand::default();
    hand.add("kernel", span(SpanKind::Kernel, 0, 5)).add("kernel", span(SpanKind::Kernel, 7, 9));
    let analysis = analyzed(&one(hand), &Selection::default());
    assert!(analysis.steps.is_empty());
    assert_eq!((analysis.ranks[0].partition.span_ns, analysis.ranks[0].partition.idle_ns), (9_000, 2_000));
}

#[test]
fn spans_without_length_and_times_at_the_ends_of_time() {
    let mut hand = Hand::default();
    let at = |start: i64, duration: i64| {
        Span::new(SpanKind::Kernel, stepscope_traces::FIRST_NAME, Nanos(start), Nanos(duration))
    };
    hand.add("zero", within(span(SpanKind::Kernel, 5, 5), 0, 0, Phase::Forward, 0));
    let analysis = analyzed(&one(hand), &Selection::default());
    assert_eq!((analysis.ranks[0].partition.span_ns, analysis.ranks[0].kernel_count), (0, 1));
    let mut hand = Hand::default();
    hand.add("late", at(i64::MAX - 20, 10)).add("later", at(i64::MAX - 5, 100)).add("negative", at(i64::MAX - 13, -7));
    let analysis = analyzed(&one(hand), &Selection::default());
    assert_eq!(analysis.data_loss.unreadable_events, 1, "one ends after the last time there is");
    assert_eq!((analysis.ranks[0].partition.span_ns, analysis.ranks[0].partition.compute_ns), (10, 10));
}

#[test]
fn times_that_cannot_be_are_refused() {
    let at = |start: i64| Span::new(SpanKind::Kernel, stepscope_traces::FIRST_NAME, Nanos(start), Nanos(10));
    let mut hand = Hand::default();
    hand.add("early", at(i64::MIN)).add("late", at(i64::MAX - 20));
    let run = Run::open(&one(hand).path().join("run")).map(|run| analyze(&run, &Selection::default(), &|_| {}));
    let error = run.unwrap().unwrap_err().to_string();
    assert!(error.contains("its recording is damaged"), "{error}");
}

#[test]
fn a_step_that_was_cut_off_does_not_count() {
    let mut hand = Hand::default();
    for step in 0..6 {
        let start = 100 * i64::from(step);
        let end = if step == 5 { start + 10 } else { start + 100 };
        hand.add("kernel", within(span(SpanKind::Kernel, start, end), step, 0, Phase::Forward, 0));
        // What says that a step is over is recorded when it is.
        if step < 5 {
            hand.add("step", within(span(SpanKind::Step, start, end), step, 0, Phase::Forward, 0));
            let time_ns = Nanos(1000 * (end - 1));
            hand.counters.push(CounterSample { time_ns, counter: Counter::Tokens.id(), value: 10.0 });
        }
    }
    let analysis = analyzed(&one(hand), &Selection::default());
    let time = analysis.step_time.unwrap();
    assert_eq!((time.count, analysis.window.cut_off.as_slice()), (4, &[Step(5)][..]));
    assert_eq!((time.median_ns, time.low_ns), (100_000, 100_000));
    assert!((time.tokens_per_second.unwrap() - 10.0 / 100e-6).abs() < 1e-6);
    assert_eq!(analysis.steps.last().unwrap().tokens, None);
}

#[test]
fn what_is_not_there_cannot_be_selected() {
    let directory = TempDir::new().unwrap();
    Recipe { replicas: 2, steps: 2, ..Recipe::default() }.write(&directory.path().join("run")).unwrap();
    let run = Run::open(&directory.path().join("run")).unwrap();
    let error = |selection: Selection| analyze(&run, &selection, &|_| {}).unwrap_err();
    let of_ranks = error(Selection { ranks: vec![Rank(9)], ..Selection::default() });
    assert!(matches!(&of_ranks, AnalysisError::Selection(why) if why.contains("no rank 9 among the 2")), "{of_ranks}");
    let steps = StepRange { from: Some(Step(7)), to: None }.into();
    let of_steps = error(Selection { steps, ..Selection::default() });
    let recorded = Some((Step(0), Step(1)));
    assert!(matches!(of_steps, AnalysisError::NoSuchSteps { recorded: found } if found == recorded), "{of_steps}");
    let one = analyze(&run, &Selection { ranks: vec![Rank(1)], ..Selection::default() }, &|_| {}).unwrap();
    assert_eq!((one.ranks.len(), one.ranks[0].rank), (1, Rank(1)));
}

#[test]
fn torn_and_missing_files_leave_what_is_there() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    Recipe { replicas: 2, steps: 30, flush_every: Nanos(1_000_000), ..Recipe::default() }.write(&path).unwrap();
    let spans = path.join("rank-00001/spans.arrows");
    let bytes = fs::read(&spans).unwrap();
    fs::write(&spans, &bytes[..bytes.len() * 2 / 3]).unwrap();
    fs::remove_dir_all(path.join("rank-00000")).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    let analysis = analyze(&run, &Selection::default(), &|_| {}).unwrap();
    assert_adds_up(&analysis);
    assert_eq!(analysis.run.state, State::Interrupted);
    assert!(analysis.data_loss.unreadable_bytes > 0 || analysis.data_loss.unreadable_events > 0);
    assert!(!analysis.steps.is_empty() && analysis.steps.len() < 30);
}

#[test]
fn time_between_recording_windows_belongs_to_nothing() {
    let mut hand = Hand::default();
    for (start, end) in [(0, 100), (300, 400)] {
        hand.add(RECORDED_WINDOW, span(SpanKind::Range, start, end));
    }
    // The second step reaches out of the first window, and the third begins before the other one does.
    for (step, kernel, annotation) in
        [(0, (0, 40), (0, 45)), (1, (50, 90), (50, 120)), (2, (310, 340), (250, 345)), (3, (350, 380), (350, 390))]
    {
        hand.add("kernel", within(span(SpanKind::Kernel, kernel.0, kernel.1), step, 0, Phase::Forward, 0));
        hand.add("step", within(span(SpanKind::Step, annotation.0, annotation.1), step, 0, Phase::Forward, 0));
    }
    let analysis = analyzed(&one(hand), &Selection::default());
    let time = |partition: &Partition| (partition.span_ns, partition.compute_ns, partition.idle_ns);
    assert_eq!(analysis.window.cut_off, [Step(1), Step(2)]);
    // From 0 to 90 and from 310 to 380.
    assert_eq!(time(&analysis.ranks[0].partition), (160_000, 140_000, 20_000));
    // From 0 to 50 and from 350 to 380.
    assert_eq!(time(&analysis.counted[0].partition), (80_000, 70_000, 10_000));
}

#[test]
fn what_is_left_after_the_last_step_is_no_step() {
    let mut hand = Hand::default();
    for step in 0..4 {
        let start = 100 * i64::from(step);
        hand.add("kernel", within(span(SpanKind::Kernel, start, start + 90), step, 0, Phase::Forward, 0));
        hand.add("step", within(span(SpanKind::Step, start, start + 95), step, 0, Phase::Forward, 0));
    }
    // An optimizer that has stepped begins another step, and the program brings its weights home.
    hand.add("copy", within(span(SpanKind::Copy, 400, 450), 4, 0, Phase::Forward, 0));
    let analysis = analyzed(&one(hand), &Selection::default());
    assert_eq!(analysis.steps.iter().map(|step| step.step.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(analysis.window.cut_off.is_empty());
    assert_eq!(analysis.ranks[0].partition.span_ns, 450_000, "it is a part of the recording");
}

/// A memory snapshot says when steps were, and not what ran in them.
#[test]
fn ranks_of_which_nobody_saw_what_ran_have_no_part_in_means() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures");
    let (trace, snapshot) = (fixtures.join("kineto/ddp/rank1.json.gz"), fixtures.join("ddp-rank0.pickle"));
    let of = |sources: &[&Path]| analyze(&Run::of_sources(sources).unwrap(), &Selection::default(), &|_| ()).unwrap();
    let (alone, both) = (of(&[&trace]), of(&[&trace, &snapshot]));
    let ranks: Vec<(u32, u64)> = both.counted.iter().map(|rank| (rank.rank.0, rank.windows)).collect();
    assert_eq!(ranks, [(0, 0), (1, alone.counted[0].windows)]);
    assert!(
        both.steps
            .iter()
            .map(|step| (step.step, step.partition))
            .eq(alone.steps.iter().map(|step| (step.step, step.partition)))
    );
    assert_eq!((&both.step_time, &both.waterfall), (&alone.step_time, &alone.waterfall));
    assert_eq!(both.memory.iter().map(|memory| memory.rank.0).collect::<Vec<_>>(), [0, 1]);
}
