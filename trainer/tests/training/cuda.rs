//! The GPU trains as the CPU does. Without a GPU these say that they were skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use stepscope_plan::{Experts, ModelShape, ParallelLayout, Precision, Recompute};
use stepscope_traces::{RankData, Run, RunInfo, SpanKind, Stream, Window};
use stepscope_trainer::{CudaTraining, SaveEvery, TrainConfig, TrainError, look_for_gpu};
use tempfile::TempDir;

use crate::{
    checkpoints::{Key, assembled, saving},
    experts::assert_memory_as_planned,
    memory::assert_as_planned,
    skipped::skipped,
    support::{self, losses},
};

/// The GPU, for one test at a time: one of them fills its memory. Says so, if there is none.
pub(crate) fn gpu() -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    look_for_gpu(1).inspect_err(|why| skipped("gpu", why)).ok()?;
    Some(ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn tiny(precision: Precision, gradients: Precision) -> TrainConfig {
    let layout = ParallelLayout {
        micro_batch: 4,
        micro_batches: 2,
        sequence_length: 128,
        precision,
        gradients,
        ..ParallelLayout::default()
    };
    let model = ModelShape::preset("tiny").unwrap();
    TrainConfig { steps: 20, deterministic: true, ..TrainConfig::new(model, layout) }
}

pub(crate) fn losses_on_gpu(config: &TrainConfig, run: Option<&std::path::Path>) -> Result<Vec<f64>, TrainError> {
    let losses = Mutex::new(Vec::new());
    CudaTraining::prepare(config, None)?.run(run, &|step| losses.lock().unwrap().push(step.loss))?;
    Ok(losses.into_inner().unwrap())
}

fn furthest(ours: &[f64], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
}

#[test]
fn losses_are_those_of_the_cpu() {
    let Some(_gpu) = gpu() else { return };
    for (precision, gradients, tolerance) in [
        (Precision::Fp32, Precision::Fp32, 1e-3),
        (Precision::Bf16, Precision::Bf16, 2e-2),
        (Precision::Bf16, Precision::Fp32, 2e-2),
    ] {
        let config = tiny(precision, gradients);
        let (gpu, cpu) = (losses_on_gpu(&config, None).unwrap(), losses(&config, None).unwrap());
        let apart = furthest(&gpu, &cpu);
        eprintln!("{precision:?} with gradients in {gradients:?}: {apart:.1e} apart over {} steps", gpu.len());
        assert!(apart < tolerance, "{gpu:?} {cpu:?}");
        assert!(cpu[19] < 0.6 * cpu[0], "it learns");
    }
}

fn tiny_with_experts(precision: Precision, gradients: Precision) -> TrainConfig {
    let tiny = tiny(precision, gradients);
    TrainConfig { model: ModelShape::preset("tiny-moe").unwrap(), steps: 10, ..tiny }
}

/// The same model with a shared expert beside the others, but for the first layer, which has a wide network and no experts.
pub(crate) fn with_shared_experts() -> ModelShape {
    let model = ModelShape::preset("tiny-moe").unwrap();
    let experts = model.experts.map(|experts| Experts { shared: 1, dense_layers: 1, dense_ffn: 384, ..experts });
    ModelShape { experts, ..model }
}

#[test]
fn shared_experts_train_as_on_the_cpu() {
    let Some(_gpu) = gpu() else { return };
    for (precision, tolerance) in [(Precision::Fp32, 1e-3), (Precision::Bf16, 2e-2)] {
        let config = TrainConfig { model: with_shared_experts(), ..tiny_with_experts(precision, Precision::Fp32) };
        let (gpu, cpu) = (losses_on_gpu(&config, None).unwrap(), losses(&config, None).unwrap());
        let apart = gpu.iter().zip(&cpu).map(|(gpu, cpu)| (gpu - cpu).abs() / cpu).fold(0.0, f64::max);
        eprintln!("{precision:?}: {apart:.1e} apart over {} steps", gpu.len());
        assert!(apart < tolerance, "{gpu:?} {cpu:?}");
    }
}

#[test]
fn experts_train_as_on_the_cpu() {
    let Some(_gpu) = gpu() else { return };
    for (precision, gradients, tolerance) in [
        (Precision::Fp32, Precision::Fp32, 1e-3),
        (Precision::Bf16, Precision::Bf16, 2e-2),
        (Precision::Bf16, Precision::Fp32, 2e-2),
    ] {
        let config = tiny_with_experts(precision, gradients);
        let (gpu, cpu) = (losses_on_gpu(&config, None).unwrap(), losses(&config, None).unwrap());
        let apart = gpu.iter().zip(&cpu).map(|(gpu, cpu)| (gpu - cpu).abs() / cpu).fold(0.0, f64::max);
        eprintln!("{precision:?} with gradients in {gradients:?}: {apart:.1e} apart over {} steps", gpu.len());
        assert!(apart < tolerance, "{gpu:?} {cpu:?}");
        assert_eq!(gpu, losses_on_gpu(&config, None).unwrap(), "the same to the last bit each time");
        let full = ParallelLayout { recompute: Recompute::Full, ..config.layout };
        let again = losses_on_gpu(&TrainConfig { layout: full, ..config.clone() }, None).unwrap();
        assert_eq!(gpu, again, "computed again");
    }
}

fn flops_of_steps(data: &RankData) -> BTreeMap<i32, u64> {
    let mut flops = BTreeMap::new();
    for span in data.spans.rows() {
        if let (Some(step), Some(of_span)) = (span.step, span.flops) {
            *flops.entry(step.0).or_default() += of_span;
        }
    }
    flops
}

/// Tokens choose other experts in every step, and all choices together are as many.
#[test]
fn what_is_recorded_of_experts_on_a_gpu_is_what_was_planned() {
    let Some(_gpu) = gpu() else { return };
    let config = TrainConfig { steps: 4, ..tiny_with_experts(Precision::Bf16, Precision::Bf16) };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("experts").create(&path).unwrap();
    let recorded = losses_on_gpu(&config, Some(&path)).unwrap();
    assert_eq!(recorded, losses_on_gpu(&config, None).unwrap(), "recording changes no bit");
    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    let of_gpu = flops_of_steps(&data);
    assert_eq!(of_gpu.len(), 4);
    assert_eq!(of_gpu, flops_of_steps(&support::recorded(&config)[0]), "as much work as on the CPU");
    assert_memory_as_planned("a GPU", &config, vec![data], 1.05);
}

/// The gradient of the first step, by tensor: what the first moments are a tenth of.
fn gradients(config: &TrainConfig, on_gpu: bool) -> BTreeMap<Key, Vec<f32>> {
    let directory = TempDir::new().unwrap();
    let config = TrainConfig { steps: 1, ..saving(config, directory.path(), 1) };
    if on_gpu { losses_on_gpu(&config, None) } else { losses(&config, None) }.unwrap();
    let mut tensors = assembled(&config, &directory.path().join("step-000001"));
    tensors.retain(|(_, _, kind), _| *kind == "first_moment");
    tensors
}

/// How far apart two tensors are, as a part of the length of the second.
fn apart(found: &[f32], expected: &[f32]) -> f64 {
    let length =
        |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    length(&mut found.iter().zip(expected).map(|(found, expected)| found - expected))
        / length(&mut expected.iter().copied())
}

#[test]
fn every_gradient_in_bf16_is_as_exact_as_the_cpus() {
    let Some(_gpu) = gpu() else { return };
    let exact = gradients(&tiny(Precision::Fp32, Precision::Fp32), false);
    for of_gradients in [Precision::Bf16, Precision::Fp32] {
        let config = tiny(Precision::Bf16, of_gradients);
        let (cpu, gpu) = (gradients(&config, false), gradients(&config, true));
        for (key, exact) in &exact {
            let (cpu, gpu) = (apart(&cpu[key], exact), apart(&gpu[key], exact));
            eprintln!("{key:?} in {}: {cpu:.1e} off on the CPU, {gpu:.1e} on the GPU", of_gradients.name());
            assert!(gpu < 1.5 * cpu, "{key:?}: {gpu:.1e} off, {cpu:.1e} on the CPU");
        }
    }
}

#[test]
fn accumulation_and_recomputation_change_nothing_but_rounding() {
    let Some(_gpu) = gpu() else { return };
    let config = tiny(Precision::Fp32, Precision::Fp32);
    let usual = losses_on_gpu(&config, None).unwrap();
    assert_eq!(usual, losses_on_gpu(&config, None).unwrap(), "a run is the same to the last bit each time");
    let with = |layout| losses_on_gpu(&TrainConfig { layout, ..config.clone() }, None).unwrap();
    let layout = config.layout;
    for recompute in [Recompute::Selective, Recompute::Full] {
        assert_eq!(usual, with(ParallelLayout { recompute, ..layout }), "{}", recompute.name());
    }
    let apart = furthest(&usual, &with(ParallelLayout { micro_batch: 2, micro_batches: 4, ..layout }));
    assert!(apart < 1e-3, "{apart}");
}

#[test]
fn checkpoints_go_from_one_backend_to_the_other() {
    let Some(_gpu) = gpu() else { return };
    let config = tiny(Precision::Fp32, Precision::Fp32);
    let whole = losses(&config, None).unwrap();
    for (first_on_gpu, name) in [(true, "from the GPU to the CPU"), (false, "from the CPU to the GPU")] {
        let directory = TempDir::new().unwrap();
        let save = Some(SaveEvery { steps: 10, directory: directory.path().into() });
        let first = TrainConfig { steps: 10, save, ..config.clone() };
        let resume = Some(directory.path().join("step-000010"));
        let second = TrainConfig { resume, ..config.clone() };
        let run = |on_gpu: bool, config: &TrainConfig| {
            if on_gpu { losses_on_gpu(config, None) } else { losses(config, None) }.unwrap()
        };
        let all = [run(first_on_gpu, &first), run(!first_on_gpu, &second)].concat();
        let apart = furthest(&all, &whole);
        assert!(apart < 1e-3, "{name}: {apart}");
    }
}

#[test]
fn what_is_recorded_of_a_gpu_says_what_it_is() {
    let Some(_gpu) = gpu() else { return };
    let config = TrainConfig { steps: 5, ..tiny(Precision::Bf16, Precision::Fp32) };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("gpu").create(&path).unwrap();
    let recorded = losses_on_gpu(&config, Some(&path)).unwrap();
    assert_eq!(recorded, losses_on_gpu(&config, None).unwrap(), "recording changes no bit");
    let run = Run::open(&path).unwrap();
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");

    let kernels: Vec<_> = data.spans.rows().filter(|span| span.kind == SpanKind::Kernel).collect();
    assert!(!kernels.is_empty());
    let of_steps: Vec<_> = kernels.iter().filter(|kernel| kernel.step.is_some()).collect();
    assert!(of_steps.iter().all(|kernel| kernel.phase.is_some() || kernel.micro_batch.is_none()), "phases are known");
    let mut by_step = BTreeMap::<i32, (u64, u64)>::new();
    for kernel in &of_steps {
        let sum = by_step.entry(kernel.step.unwrap().0).or_default();
        *sum = (sum.0 + 1, sum.1 + kernel.flops.unwrap_or(0));
    }
    eprintln!("kernels and FLOPs of each step: {by_step:?}");
    assert_eq!(by_step.len(), 5);
    assert!(by_step.values().all(|sum| *sum == by_step[&0]), "every step does the same: {by_step:?}");

    // Memory is in the device's time: everything of a step happens where something on the compute stream begins or ends.
    let work = data.spans.rows().filter(|span| !span.kind.is_annotation() && span.stream == Some(Stream(0)));
    let borders: BTreeSet<i64> = work.flat_map(|span| [span.interval().0.0, span.interval().1.0]).collect();
    let of_steps = data.memory.rows().filter(|event| event.step.is_some());
    let (mut events, mut between) = (0, 0);
    for event in of_steps {
        events += 1;
        between += usize::from(!borders.contains(&event.time_ns.0));
    }
    let by_host = run.ranks[0].info.collector.memory_times_of_host;
    eprintln!("{events} memory events in steps, {between} of them off the kernels; by the host in all: {by_host:?}");
    // What waits long for a launch, as where kernels are compiled first, gets the host's time, and is counted.
    let by_host = by_host.unwrap() as usize;
    assert!(events > 0 && between <= by_host && 100 * by_host <= events, "{between} of {events}, {by_host} said");
    assert!(data.memory.rows().is_sorted_by_key(|event| event.time_ns), "in the order in which they were recorded");

    assert_as_planned("a GPU", &config, vec![data]);
}

#[test]
fn without_memory_it_says_what_fills_it() {
    let Some(_gpu) = gpu() else { return };
    // What is held fits; what a batch takes does not.
    let layout = ParallelLayout { micro_batch: 512, sequence_length: 2048, ..ParallelLayout::default() };
    let config = TrainConfig::new(ModelShape::preset("llama-1b").unwrap(), layout);
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("gpu").create(&path).unwrap();
    let error = losses_on_gpu(&config, Some(&path)).unwrap_err();
    let TrainError::OutOfMemory { wanted, in_use, .. } = &error else { panic!("{error}") };
    eprintln!("{error}");
    assert!(error.to_string().contains("in use: parameters "), "{error}");
    // The recording says the same, with what was there then.
    let run = Run::open(&path).unwrap();
    let shortage = run.ranks[0].info.collector.out_of_memory.clone().unwrap();
    assert_eq!((shortage.times, shortage.requested_bytes, shortage.free_bytes), (1, *wanted, in_use.free));
    let held = shortage.held.unwrap();
    assert_eq!(held.allocated_bytes, in_use.categories.iter().copied().collect::<BTreeMap<_, _>>());
    assert_eq!(held.reserved_bytes - held.allocated_bytes.values().sum::<u64>(), in_use.fragmentation);

    let layout = ParallelLayout { micro_batch: 1, ..layout };
    let config = TrainConfig::new(ModelShape::preset("llama-70b").unwrap(), layout);
    let error = losses_on_gpu(&config, None).unwrap_err().to_string();
    assert!(error.starts_with("a rank of llama-70b needs "), "{error}");
}
