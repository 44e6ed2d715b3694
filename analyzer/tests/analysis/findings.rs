use stepscope_analyzer::{Analysis, Finding, Selection};
use stepscope_plan::{Axis, ModelShape, ParallelLayout, Schedule};
use stepscope_traces::{
    Group, GroupInfo, MemoryCategory, MemoryEvent, MemoryOperation, Nanos, Phase, Rank, RunInfo, Sequence, Span,
    SpanKind, Step,
    synthetic::{Pipeline, Recipe},
};
use tempfile::TempDir;

use crate::support::{Hand, analyzed, span, within, write};

fn kinds(analysis: &Analysis) -> Vec<&'static str> {
    for finding in &analysis.findings {
        assert!((0.0..=1.0).contains(&finding.share), "{finding:?}");
        let evidence = finding.evidence.text.chars().any(|character| character.is_ascii_digit());
        assert!(evidence && !finding.summary.is_empty() && !finding.advice.is_empty(), "{finding:?}");
    }
    let step = analysis.step_time.as_ref().map(|time| time.median_ns);
    let win = |finding: &Finding| {
        let replayed = step.zip(finding.step_without_ns).map(|(step, without)| step - without);
        replayed.or(finding.lost_ns)
    };
    let wins: Vec<i64> = analysis.findings.iter().filter_map(win).collect();
    assert!(wins.is_sorted_by(|one, other| one >= other), "{:?}", analysis.findings);
    analysis.findings.iter().map(|finding| finding.kind).collect()
}

fn made(recipe: &Recipe) -> Analysis {
    let directory = TempDir::new().unwrap();
    recipe.write(&directory.path().join("run")).unwrap();
    analyzed(&directory, &Selection::default())
}

#[test]
fn a_healthy_run_has_none() {
    let healthy = Recipe { overlap: 0.95, largest_gap: Nanos(200), steps: 6, micro_batches: 8, ..Recipe::default() };
    assert_eq!(kinds(&made(&healthy)), [""; 0]);
    assert_eq!(kinds(&made(&Recipe { replicas: 4, ..healthy.clone() })), [""; 0]);
    let pipeline = Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(1000) };
    assert_eq!(kinds(&made(&Recipe { pipeline: Some(pipeline), ..healthy })), [""; 0]);
}

#[test]
fn communication_that_nothing_hides_is_found() {
    let mut info = RunInfo::of_this_process("exposed");
    info.groups = vec![GroupInfo { group: Group(3), axis: Axis::Data, ranks: vec![Rank(0)] }];
    let mut hand = Hand::default();
    for step in 0..4 {
        let start = 100 * i64::from(step);
        let reduce = within(span(SpanKind::AllReduce, start + 80, start + 100), step, 0, Phase::Backward, 0);
        hand.add("matmul", within(span(SpanKind::Kernel, start, start + 80), step, 0, Phase::Backward, 0));
        hand.add("all_reduce", Span { group: Some(Group(3)), sequence: Some(Sequence(step as u64)), ..reduce });
    }
    let analysis = analyzed(&write(info, &[hand]), &Selection::default());
    assert_eq!(kinds(&analysis), ["exposed-communication"]);
    assert!(analysis.findings[0].summary.ends_with(": 20% of the step"), "{:?}", analysis.findings);
}

#[test]
fn a_step_that_is_held_is_found() {
    let run = |held: i64| {
        let (mut hand, mut start) = (Hand::default(), 0);
        for step in 0..20 {
            let length = if step == 12 { held } else { 100 };
            hand.add("matmul", within(span(SpanKind::Kernel, start, start + length), step, 0, Phase::Forward, 0));
            start += length;
        }
        analyzed(&write(RunInfo::of_this_process("held"), &[hand]), &Selection::default())
    };
    assert_eq!(kinds(&run(250)), [""; 0], "steps differ");
    let analysis = run(2000);
    assert_eq!(kinds(&analysis), ["long-step"]);
    assert_eq!(analysis.findings[0].summary, "step 12 took 20 times as long as the median step");
}

#[test]
fn too_few_micro_batches_are_found() {
    let pipeline = Pipeline { stages: 4, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(1000) };
    let few = Recipe { pipeline: Some(pipeline), micro_batches: 2, ..Recipe::default() };
    assert!(kinds(&made(&few)).contains(&"few-micro-batches"));
}

/// Ten steps of one kernel of 50 µs each, every 100 µs, on one rank.
fn every_other_moment() -> Hand {
    let mut hand = Hand::default();
    for step in 0..10 {
        let start = 100 * i64::from(step);
        hand.add("matmul", within(span(SpanKind::Kernel, start, start + 50), step, 0, Phase::Forward, 0));
    }
    hand
}

#[test]
fn a_device_that_waits_for_its_host_is_found() {
    let analysis = analyzed(&write(RunInfo::of_this_process("idle"), &[every_other_moment()]), &Selection::default());
    assert_eq!(kinds(&analysis), ["host-bound"]);
    assert!(analysis.findings[0].summary.contains("47%"), "{:?}", analysis.findings);
}

#[test]
fn memory_is_looked_at() {
    let mut hand = every_other_moment();
    let event = |time: i64, address: u64, bytes: u64, category: MemoryCategory| MemoryEvent {
        time_ns: Nanos(1000 * time),
        op: MemoryOperation::Alloc,
        address,
        bytes: Some(bytes),
        category: Some(category),
        step: Some(Step((time / 100) as i32)),
        phase: None,
        layer: None,
        pool: None,
        site: None,
    };
    hand.memory.push(event(0, 1, 4_000_000, MemoryCategory::OptimizerState));
    hand.memory.push(event(1, 2, 9_000_000, MemoryCategory::Activations));
    // Something is left behind in every step.
    hand.memory.extend((0..10).map(|step| event(100 * step + 10, 100 + step as u64, 50_000, MemoryCategory::Other)));
    let mut info = RunInfo::of_this_process("memory");
    info.model = Some(ModelShape::preset("tiny").unwrap());
    info.layout = Some(ParallelLayout { dp: 2, ..ParallelLayout::default() });
    let analysis = analyzed(&write(info, &[hand]), &Selection::default());
    let found = kinds(&analysis);
    for kind in ["activations", "replicated-optimizer", "memory-growth"] {
        assert!(found.contains(&kind), "{found:?}");
    }
    let growth = analysis.findings.iter().find(|finding| finding.kind == "memory-growth").unwrap();
    assert!(growth.summary.contains("grows by 50.0 kB per step"), "{growth:?}");
}
