use std::fs;

use stepscope_analyzer::{AnalysisError, Selection, StepRange, analyze};
use stepscope_traces::{Nanos, Phase, Rank, Run, RunInfo, Span, SpanKind, State, Step, synthetic::Recipe};
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
    hand.add("late", at(i64::MAX - 10, 10)).add("later", at(i64::MAX - 5, 100)).add("negative", at(i64::MAX - 3, -7));
    let analysis = analyzed(&one(hand), &Selection::default());
    assert_eq!((analysis.ranks[0].partition.span_ns, analysis.ranks[0].partition.compute_ns), (10, 10));
}

#[test]
fn what_is_not_there_cannot_be_selected() {
    let directory = TempDir::new().unwrap();
    Recipe { replicas: 2, steps: 2, ..Recipe::default() }.write(&directory.path().join("run")).unwrap();
    let run = Run::open(&directory.path().join("run")).unwrap();
    let error = |selection: Selection| match analyze(&run, &selection, &|_| {}) {
        Err(AnalysisError::Selection(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(error(Selection { ranks: vec![Rank(9)], ..Selection::default() }).contains("no rank 9 among 2"));
    let steps = StepRange { from: Some(Step(7)), to: None };
    assert!(error(Selection { steps, ..Selection::default() }).contains("none of these steps"));
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
