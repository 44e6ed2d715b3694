use std::fs;

use stepscope_analyzer::{Analysis, Selection};
use stepscope_traces::{
    Nanos, Step, Window,
    synthetic::{Clocks, Pipeline, Recipe, Schedule, Truth},
};
use tempfile::TempDir;

use crate::support::analyzed;

fn made(recipe: &Recipe) -> (Truth, Analysis) {
    let directory = TempDir::new().unwrap();
    let truth = recipe.write(&directory.path().join("run")).unwrap();
    let analysis = analyzed(&directory, &Selection::default());
    (truth, analysis)
}

/// Every figure of every step and rank, to the nanosecond and the byte.
fn assert_true(truth: &Truth, analysis: &Analysis) {
    for rank in &truth.ranks {
        let steps: Vec<_> = analysis.steps.iter().filter(|step| step.rank == rank.rank).collect();
        assert_eq!(steps.len(), rank.steps.len());
        for (step, truth) in steps.iter().zip(&rank.steps) {
            let (found, figures) = (&step.partition, &truth.figures);
            assert_eq!((step.step, step.start_ns), (truth.step, truth.start.0));
            assert_eq!(found.span_ns, figures.span.0);
            assert_eq!(found.compute_ns, figures.compute.0);
            assert_eq!(found.communication_ns, figures.communication.0);
            assert_eq!(found.overlapped_communication_ns, figures.overlapped_communication.0);
            assert_eq!(found.exposed_communication_ns, figures.exposed_communication().0);
            assert_eq!(found.copy_ns, figures.copy.0);
            assert_eq!(found.exposed_copy_ns, figures.exposed_copy.0);
            assert_eq!(found.idle_ns, figures.idle.0);
            assert_eq!(found.overlap, figures.overlap());
            assert_eq!((step.loss, step.tokens), (Some(truth.loss), Some(truth.tokens)));
        }
        let found = analysis.ranks.iter().find(|found| found.rank == rank.rank).unwrap();
        assert_eq!(found.kernel_count, rank.kernels);
    }
}

#[test]
fn one_rank_to_the_nanosecond() {
    for seed in 0..5 {
        let (truth, analysis) = made(&Recipe { seed, steps: 6, compute_streams: 3, ..Recipe::default() });
        assert_true(&truth, &analysis);
    }
}

#[test]
fn many_ranks_to_the_nanosecond() {
    let clocks = Clocks { largest_offset: Nanos(1 << 40), largest_drift: 20_000, largest_wall_error: Nanos(1_000_000) };
    let (truth, analysis) = made(&Recipe { replicas: 4, waiting: 0.4, clocks, ..Recipe::default() });
    assert_true(&truth, &analysis);
}

#[test]
fn the_end_of_a_run_can_be_read_alone() {
    let directory = TempDir::new().unwrap();
    let recipe = Recipe { steps: 20, flush_every: Nanos(5_000_000), ..Recipe::default() };
    let truth = recipe.write(&directory.path().join("run")).unwrap();
    // From the beginning of a step on, as a live view of the last steps would.
    let window = Window { from: truth.ranks[0].steps[15].start, to: Nanos(i64::MAX) };
    let last = analyzed(&directory, &Selection { window: Some(window), ..Selection::default() });
    let whole = analyzed(&directory, &Selection::default());
    let figures = |analysis: &Analysis| {
        let steps = analysis.steps.iter().filter(|step| step.step >= Step(15));
        steps.map(|step| (step.step, step.start_ns, step.partition)).collect::<Vec<_>>()
    };
    assert_eq!(figures(&last), figures(&whole));
    assert_eq!(figures(&last).len(), 5);
    assert!(last.kernels[0].count < whole.kernels[0].count / 3);
}

#[test]
fn bubbles_are_the_ones_that_were_made() {
    for schedule in Schedule::ONE_WAY {
        let chunks = if schedule == Schedule::Interleaved { 2 } else { 1 };
        let pipeline = Pipeline { stages: 4, schedule, chunks, transfer: Nanos(10_000) };
        let recipe = Recipe { micro_batches: 8, layers: 4, pipeline: Some(pipeline), ..Recipe::default() };
        let (truth, analysis) = made(&recipe);
        assert_true(&truth, &analysis);
        let (found, truth) = (analysis.pipeline.unwrap(), truth.pipeline.unwrap());
        assert_eq!(found.ideal_bubble, truth.ideal_bubble);
        for (step, found) in found.per_step.iter().enumerate() {
            let (bubble, truth) = (found.bubble, truth.bubble(step));
            assert!((bubble - truth).abs() < 1e-9, "{schedule:?}, step {step}: {bubble} is not {truth}");
        }
    }
}

/// As of a run of another program, which numbers its micro-batches.
#[test]
fn a_schedule_is_told_from_what_is_done_of_each_micro_batch() {
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble] {
        let directory = TempDir::new().unwrap();
        let run = directory.path().join("run");
        let pipeline = Pipeline { stages: 4, schedule, chunks: 1, transfer: Nanos(10_000) };
        Recipe { micro_batches: 8, layers: 4, pipeline: Some(pipeline), ..Recipe::default() }.write(&run).unwrap();
        let file = run.join("run.json");
        let mut info: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        info["layout"] = serde_json::Value::Null;
        fs::write(&file, info.to_string()).unwrap();
        let found = analyzed(&directory, &Selection::default()).pipeline.unwrap();
        assert_eq!((found.schedule, found.micro_batches, found.inferred), (schedule, 8, true));
    }
}

#[test]
fn what_is_hidden_is_what_was_hidden() {
    let overlap = |overlap| {
        let (truth, analysis) = made(&Recipe { replicas: 2, compute_streams: 1, overlap, ..Recipe::default() });
        assert_true(&truth, &analysis);
        analysis.ranks.iter().filter_map(|rank| rank.partition.overlap).fold(0.0, f64::max)
    };
    let (none, some, most) = (overlap(0.0), overlap(0.5), overlap(1.0));
    assert!(none < 0.01 && none < some && some < most, "{none}, {some}, {most}");
}

#[test]
fn bubbles_fall_with_more_micro_batches() {
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        let bubble = |micro_batches| {
            let pipeline = Some(Pipeline { stages: 2, schedule, chunks: 1, transfer: Nanos(10_000) });
            let (_, analysis) = made(&Recipe { micro_batches, pipeline, ..Recipe::default() });
            let pipeline = analysis.pipeline.unwrap();
            (pipeline.bubble.unwrap(), pipeline.ideal_bubble)
        };
        let ((few, ideal), (many, _)) = (bubble(2), bubble(16));
        assert!(many < few && few > 0.5 * ideal, "{schedule:?}: {few} with 2, ideally {ideal}; {many} with 16");
    }
}
