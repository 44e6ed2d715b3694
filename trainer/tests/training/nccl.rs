//! Ranks on GPUs, as processes over NCCL: they train as a single one does, and end together. Without a GPU, or without an
//! NCCL that lets ranks share it, these say that they were skipped.

use std::{
    sync::MutexGuard,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use stepscope_plan::{ModelShape, ParallelLayout, Precision, Zero};
use stepscope_traces::{RankData, Run, Span, SpanKind, Window};
use stepscope_trainer::{TrainConfig, variables_for_ranks};

use crate::{
    cuda::{gpu, losses_on_gpu, with_shared_experts},
    experts,
    memory::assert_as_planned,
    processes::{Ranks, Told, dp2_pp2, steps, told},
    skipped::skipped,
    support::{GLOBAL_BATCH, config, in_bf16, layouts, losses, read, single},
};

/// As many ranks as the GPU of a developer can take at a time.
const MOST_RANKS: u64 = 4;

/// GPUs for several ranks, for one test at a time.
fn gpus() -> Option<MutexGuard<'static, ()>> {
    variables_for_ranks(MOST_RANKS).inspect_err(|why| skipped("nccl", why)).ok()?;
    gpu()
}

fn model() -> ModelShape {
    ModelShape::preset("tiny").unwrap()
}

/// The job of the CPU's tests, with a model that a GPU takes. With seed 0 that model stands on an edge after its fourth
/// step: how a CPU cuts its micro-batches already decides where it falls in bf16.
pub(crate) fn on_gpus(model: &ModelShape, layout: ParallelLayout) -> TrainConfig {
    TrainConfig { model: model.clone(), seed: 1, deterministic: true, ..config(layout) }
}

/// The same job as processes on GPUs.
fn ranks_of(config: &TrainConfig) -> Ranks {
    ranks_with(&model(), config)
}

fn ranks_with(model: &ModelShape, config: &TrainConfig) -> Ranks {
    let (told, directory) = told(config.layout);
    let told = Told { on_gpus: Some(model.clone()), reduction: config.reduction, steps: config.steps, ..told };
    Ranks::new((told, directory))
}

/// Trains to the end: what each step lost, and what every rank recorded.
fn trained(name: &str, ranks: Ranks, world: u64) -> (Vec<f64>, Vec<RankData>) {
    let mut ranks = ranks.start_all();
    for rank in 0..world as u32 {
        assert_eq!(ranks.outcome(rank), "trained", "{name}");
    }
    (steps(ranks.directory.path()), read(&ranks.directory.path().join("run of rank 0")))
}

/// The layouts of the CPU's tests, with a model that a GPU takes.
fn gpu_layouts() -> impl Iterator<Item = (String, TrainConfig)> {
    let of_ranks = layouts().into_iter().filter(|(_, config)| (2..=MOST_RANKS).contains(&config.layout.world_size()));
    of_ranks
        .map(|(name, of_cpu)| (name, TrainConfig { reduction: of_cpu.reduction, ..on_gpus(&model(), of_cpu.layout) }))
}

fn furthest(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let apart = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / expected);
    apart.fold(0.0, f64::max)
}

/// A collective is one event on every rank that takes part, with the same name on all of them. In an all-to-all each has as much to
/// give as it has.
fn assert_collectives_meet(name: &str, ranks: &[RankData]) {
    let of = |data: &RankData| {
        let spans = data.spans.rows().filter(|span| span.sequence.is_some());
        let bytes = |span: &Span| if span.kind == SpanKind::AllToAll { None } else { span.bytes };
        let mut seen: Vec<_> = spans.map(|span| (span.group, span.sequence, bytes(&span))).collect();
        seen.sort();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{name}: one operation, one event");
        seen
    };
    let seen: Vec<_> = ranks.iter().map(of).collect();
    for (rank, operations) in seen.iter().enumerate() {
        assert!(!operations.is_empty(), "{name}: rank {rank} talks to others");
        for operation in operations {
            let elsewhere = seen.iter().enumerate().filter(|(other, _)| *other != rank);
            assert!(
                elsewhere.flat_map(|(_, operations)| operations).any(|other| other == operation),
                "{name}: {operation:?} of rank {rank} is nowhere else"
            );
        }
    }
}

#[test]
fn rounding_stays_rounding_in_the_job_for_gpus() {
    let exact = losses(&on_gpus(&model(), single()), None).unwrap();
    for micro_batches in [1, 2, 4, 8] {
        let layout = ParallelLayout { micro_batches, micro_batch: GLOBAL_BATCH / micro_batches, ..single() };
        let found = losses(&in_bf16(&on_gpus(&model(), layout), Precision::Bf16), None).unwrap();
        let apart = furthest(&found, &exact);
        assert!(apart < 2e-3, "{micro_batches} micro-batches: {apart:.1e} from fp32");
    }
}

#[test]
fn every_layout_of_whole_sequences_trains_on_gpus_as_a_single_one() {
    let Some(_gpus) = gpus() else { return };
    train_as_a_single_one(|layout| layout.cp == 1);
}

#[test]
fn every_layout_of_parts_of_sequences_trains_on_gpus_as_a_single_one() {
    let Some(_gpus) = gpus() else { return };
    train_as_a_single_one(|layout| layout.cp > 1);
}

fn train_as_a_single_one(is_of_them: impl Fn(&ParallelLayout) -> bool) {
    let alone = on_gpus(&model(), single());
    for (precision, tolerance) in [(Precision::Fp32, 1e-3), (Precision::Bf16, 2e-2)] {
        let as_said = |config: &TrainConfig| match precision {
            Precision::Fp32 => config.clone(),
            Precision::Bf16 => in_bf16(config, Precision::Bf16),
        };
        let expected = losses_on_gpu(&as_said(&alone), None).unwrap();
        for (name, config) in gpu_layouts().filter(|(_, config)| is_of_them(&config.layout)) {
            let name = format!("{name}, {}", precision.name());
            let config = as_said(&config);
            let began = Instant::now();
            let (losses, ranks) = trained(&name, ranks_of(&config), config.layout.world_size());
            let apart = furthest(&losses, &expected);
            eprintln!("{name}: {apart:.1e} apart, {:.1} s", began.elapsed().as_secs_f64());
            assert!(apart < tolerance, "{name}: {losses:?} {expected:?}");
            assert_collectives_meet(&name, &ranks);
            assert_as_planned(&name, &config, ranks);
        }
    }
}

fn with_experts() -> ModelShape {
    ModelShape::preset("tiny-moe").unwrap()
}

/// A token that is between two experts goes to another one when it is rounded otherwise.
#[test]
fn rounding_stays_rounding_in_the_job_with_experts() {
    let exact = losses(&on_gpus(&with_experts(), single()), None).unwrap();
    assert!(exact[4] < exact[0], "{exact:?}");
    for micro_batches in [1, 2, 4, 8] {
        let layout = ParallelLayout { micro_batches, micro_batch: GLOBAL_BATCH / micro_batches, ..single() };
        let found = losses(&in_bf16(&on_gpus(&with_experts(), layout), Precision::Bf16), None).unwrap();
        let apart = furthest(&found, &exact);
        assert!(apart < 5e-3, "{micro_batches} micro-batches: {apart:.1e} from fp32");
    }
}

#[test]
fn experts_train_on_gpus_in_every_layout_as_on_a_single_one() {
    let Some(_gpus) = gpus() else { return };
    experts_train_as_on_a_single_one(&with_experts(), experts::layouts());
}

#[test]
fn shared_experts_train_on_gpus_in_every_layout_as_on_a_single_one() {
    let Some(_gpus) = gpus() else { return };
    experts_train_as_on_a_single_one(&with_shared_experts(), experts::layouts_with_shared());
}

/// In the layouts of the CPU's tests.
fn experts_train_as_on_a_single_one(model: &ModelShape, layouts: Vec<(String, TrainConfig)>) {
    let of_ranks = layouts.into_iter().filter(|(_, config)| config.layout.world_size() <= MOST_RANKS);
    let layouts: Vec<(String, TrainConfig)> = of_ranks
        .map(|(name, of_cpu)| {
            // Over more steps, ranks would be fullest in different ones, and nothing says by how much together.
            let config = TrainConfig { steps: 2, ..on_gpus(model, of_cpu.layout) };
            (name, TrainConfig { reduction: of_cpu.reduction, ..config })
        })
        .collect();
    for (precision, tolerance) in [(Precision::Fp32, 1e-3), (Precision::Bf16, 2e-2)] {
        let as_said = |config: &TrainConfig| match precision {
            Precision::Fp32 => config.clone(),
            Precision::Bf16 => in_bf16(config, Precision::Fp32),
        };
        let expected = losses_on_gpu(&as_said(&TrainConfig { steps: 2, ..on_gpus(model, single()) }), None).unwrap();
        let all = precision == Precision::Fp32;
        for (name, config) in layouts.iter().filter(|(_, config)| all || config.layout.zero == Zero::Off) {
            let (name, config) = (format!("{name}, {}", precision.name()), as_said(config));
            let began = Instant::now();
            let (losses, ranks) = match config.layout.world_size() {
                1 => (losses_on_gpu(&config, None).unwrap(), Vec::new()),
                world => trained(&name, ranks_with(model, &config), world),
            };
            let apart = furthest(&losses, &expected);
            eprintln!("{name}: {apart:.1e} apart, {:.1} s", began.elapsed().as_secs_f64());
            assert!(apart < tolerance, "{name}: {losses:?} {expected:?}");
            if !ranks.is_empty() {
                assert_collectives_meet(&name, &ranks);
                experts::assert_traffic_as_planned(&name, &config, &ranks);
                experts::assert_memory_as_planned(&name, &config, ranks, 1.1);
            }
        }
    }
}

#[test]
fn recording_ranks_on_gpus_changes_no_loss() {
    let Some(_gpus) = gpus() else { return };
    let config = in_bf16(&config(dp2_pp2()), Precision::Bf16);
    let (recorded, ranks) = trained("recorded", ranks_of(&config), 4);
    let kernels = |data: &RankData| data.spans.rows().filter(|span| span.kind == SpanKind::Kernel).count();
    assert!(ranks.iter().all(|data| kernels(data) > 100));
    let (told, directory) = told(config.layout);
    let told = Told { on_gpus: Some(model()), is_recorded: false, ..told };
    let mut ranks = Ranks::new((told, directory)).start_all();
    (0..4).for_each(|rank| assert_eq!(ranks.outcome(rank), "trained"));
    assert_eq!(steps(ranks.directory.path()), recorded);
}

/// Starts a long job, does something to one of its ranks, and returns how the others end, and when.
fn disturbed(rank: u32, signal: Signal, collective: u64) -> (Vec<String>, Duration, Ranks) {
    let layout = ParallelLayout { precision: Precision::Bf16, gradients: Precision::Bf16, ..dp2_pp2() };
    let (told, directory) = told(layout);
    let told = Told { on_gpus: Some(model()), steps: 1_000_000, collective, ..told };
    let mut ranks = Ranks::new((told, directory)).start_all();
    ranks.wait_for_steps(3);
    let began = Instant::now();
    ranks.signal(rank, signal);
    let others = (0..4).filter(|other| *other != rank);
    let outcomes = others.map(|other| ranks.outcome(other)).collect();
    (outcomes, began.elapsed(), ranks)
}

#[test]
fn when_a_rank_is_killed_the_others_end() {
    let Some(_gpus) = gpus() else { return };
    let (outcomes, took, ranks) = disturbed(2, Signal::SIGKILL, 20);
    eprintln!("killed: {took:?}, {outcomes:?}");
    for outcome in outcomes {
        assert!(outcome.starts_with("rank 2 is gone: its connection closed"), "{outcome}");
    }
    let run = Run::open(&ranks.directory.path().join("run of rank 0")).unwrap();
    assert_eq!(run.ranks.len(), 4);
    for rank in &run.ranks {
        let (data, _) = rank.read(Window::ALL).unwrap();
        assert!(data.spans.rows().any(|span| span.kind == SpanKind::Kernel), "{:?}", rank.info.rank);
    }
}

#[test]
fn when_a_rank_hangs_it_is_named_with_what_it_keeps_waiting() {
    let Some(_gpus) = gpus() else { return };
    let (outcomes, took, ranks) = disturbed(2, Signal::SIGSTOP, 3);
    eprintln!("stopped: {took:?}, {outcomes:?}");
    ranks.signal(2, Signal::SIGKILL);
    for outcome in outcomes {
        let named = outcome.starts_with("rank 2 has not reached ") && outcome.contains("last finished operation: ");
        assert!(named && outcome.contains(" of group "), "{outcome}");
    }
}
