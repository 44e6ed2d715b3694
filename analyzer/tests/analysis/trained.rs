use std::{thread, time::Duration};

use stepscope_analyzer::{Analysis, CollectiveFigures, Selection, StepChoice, measured_rates};
use stepscope_plan::{Axis, ModelShape, ParallelLayout, Recompute, Schedule, Zero};
use stepscope_traces::{MemoryCategory, Rank, RunInfo, SpanKind};
use stepscope_trainer::{CpuTraining, GradientReduction, StepReport, TrainConfig, comm::Groups};
use tempfile::TempDir;

use crate::support::analyzed;

fn config(layout: ParallelLayout) -> TrainConfig {
    let model =
        ModelShape { hidden: 64, heads: 8, kv_heads: 4, head_dim: 8, ffn: 192, ..ModelShape::preset("tiny").unwrap() };
    TrainConfig { steps: 4, ..TrainConfig::new(model, ParallelLayout { sequence_length: 64, ..layout }) }
}

fn trained(config: &TrainConfig, selection: &Selection, report: &(dyn Fn(StepReport) + Sync)) -> Analysis {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    let mut info = RunInfo::of_this_process("trained");
    info.world_size = Some(config.layout.world_size() as u32);
    (info.model, info.layout) = (Some(config.model.clone()), Some(config.layout));
    info.groups = Groups::describe(&config.layout);
    info.create(&path).unwrap();
    CpuTraining::prepare(config).unwrap().run(Some(&path), report).unwrap();
    analyzed(&directory, selection)
}

/// Of every step: which of them count depends on how long they took.
fn quietly(config: &TrainConfig) -> Analysis {
    let all = Selection { steps: StepChoice::All, ..Selection::default() };
    trained(config, &all, &|_| {})
}

/// How much of it buckets hide depends on what else this machine does; `synthetic` has runs in which that is known.
#[test]
fn reducing_in_buckets_is_in_more_pieces_and_at_the_end_nothing_is_hidden() {
    let config = config(ParallelLayout { dp: 2, micro_batch: 4, ..ParallelLayout::default() });
    let of = |reduction| quietly(&TrainConfig { reduction, ..config.clone() });
    let (bucketed, naive) = (of(GradientReduction::Bucketed), of(GradientReduction::Naive));
    let reduced = |analysis: &Analysis| {
        let is_reduction =
            |figures: &&CollectiveFigures| (figures.operation, figures.axis) == (SpanKind::AllReduce, Some(Axis::Data));
        let reductions = analysis.collectives.iter().filter(is_reduction);
        reductions.fold((0, 0), |(count, bytes), figures| (count + figures.count, bytes + figures.bytes.unwrap()))
    };
    let ((pieces, bytes), (at_once, same_bytes)) = (reduced(&bucketed), reduced(&naive));
    assert_eq!(bytes, same_bytes);
    assert!(pieces > at_once, "{pieces} in buckets, {at_once} at the end");
    // It is on the compute stream, where nothing runs beside it.
    assert!(naive.ranks.iter().all(|rank| rank.partition.overlapped_communication_ns == 0), "{:?}", naive.ranks);
}

#[test]
fn memory_is_what_was_planned_and_falls_as_it_should() {
    let base = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, ..ParallelLayout::default() };
    let of = |layout: ParallelLayout, category: MemoryCategory| {
        let analysis = quietly(&config(layout));
        let memory = &analysis.memory[0];
        let predicted = memory.predicted.unwrap();
        let at_peak = |category| memory.at_peak.get(&category).copied().unwrap_or(0);
        assert_eq!(at_peak(MemoryCategory::Parameters), predicted.parameters);
        assert_eq!(at_peak(MemoryCategory::OptimizerState), predicted.optimizer_state);
        let score = analysis.prediction.as_ref().unwrap();
        let fullest = analysis.memory.iter().map(|memory| memory.peak_bytes).max().unwrap();
        assert_eq!(score.memory_bytes.map(|figure| figure.measured), Some(fullest as f64));
        // Nothing is predicted for the time of a CPU.
        let why = score.times_why_not.as_deref().unwrap();
        assert!(score.step_time_ns.is_none() && why.starts_with("nothing is known of the device "), "{why}");
        assert_eq!(measured_rates(&analysis).unwrap_err(), why);
        at_peak(category) as f64
    };
    use MemoryCategory::{Activations, Gradients, OptimizerState, Parameters};
    let zero = |zero| ParallelLayout { zero, ..base };
    assert_eq!(2.0 * of(zero(Zero::One), OptimizerState), of(base, OptimizerState));
    assert_eq!(2.0 * of(zero(Zero::Two), Gradients), of(base, Gradients));
    assert_eq!(2.0 * of(zero(Zero::Three), Parameters), of(base, Parameters));
    assert!(of(ParallelLayout { recompute: Recompute::Full, ..base }, Activations) < 0.5 * of(base, Activations));
    assert!(of(ParallelLayout { tp: 2, ..base }, Parameters) < 0.51 * of(base, Parameters));
}

/// How large bubbles are depends on what else this machine does; `synthetic` has runs in which that is known.
#[test]
fn pipelines_have_their_stages_and_what_their_schedule_leaves_idle() {
    let usual = [(2, 1.0 / 3.0), (16, 1.0 / 17.0)];
    for (schedule, ideals) in [
        (Schedule::Gpipe, usual),
        (Schedule::OneForwardOneBackward, usual),
        (Schedule::ZeroBubble, [(2, 1.0 / 7.0), (16, 1.0 / 49.0)]),
    ] {
        for (micro_batches, ideal) in ideals {
            let layout = ParallelLayout { pp: 2, schedule, micro_batches, micro_batch: 2, ..ParallelLayout::default() };
            let pipeline = quietly(&config(layout)).pipeline.unwrap();
            assert_eq!((pipeline.stages, pipeline.micro_batches, pipeline.schedule), (2, micro_batches, schedule));
            assert_eq!((pipeline.per_stage.len(), pipeline.per_step.len(), pipeline.inferred), (2, 4, false));
            assert!((pipeline.ideal_bubble - ideal).abs() < 1e-12, "{}", pipeline.ideal_bubble);
            assert!(pipeline.bubble.is_some_and(|bubble| (0.0..1.0).contains(&bubble)), "{:?}", pipeline.bubble);
        }
    }
}

#[test]
fn a_slow_rank_is_named() {
    let config = config(ParallelLayout { dp: 4, micro_batch: 1, ..ParallelLayout::default() });
    // Steps are reported on the thread of rank 0.
    let slow = |_: StepReport| thread::sleep(Duration::from_millis(150));
    let analysis = trained(&config, &Selection::default(), &slow);
    let worst = analysis.stragglers.iter().max_by_key(|rank| rank.caused_wait_ns).unwrap();
    assert_eq!(worst.rank, Rank(0), "{:?}", analysis.stragglers);
    assert!(worst.caused_wait_ns > 100_000_000, "{worst:?}");
}
