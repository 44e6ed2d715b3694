use std::path::Path;

use stepscope_analyzer::{Analysis, ModelFrom, OperatorFigures, Selection, StepRange, analyze};
use stepscope_traces::{Family, Phase, Run, Step};

/// A GPT of 8 layers, each of them checkpointed, as PyTorch's profiler recorded it with shapes.
fn checkpointed() -> Analysis {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures/kineto/shapes/rank0.json.gz");
    analyze(&Run::of_source(&trace).unwrap(), &Selection::default(), &|_| ()).unwrap()
}

/// What `torch.utils.flop_counter` counted in a step of the same job, and the 305,922,048 FLOPs of its model for each of
/// 4,096 tokens.
#[test]
fn flops_of_kernels_are_those_that_pytorch_counts() {
    let analysis = checkpointed();
    let products: f64 = analysis
        .gemms
        .iter()
        .map(|gemm| (2 * gemm.batch * gemm.m * gemm.n * gemm.k) as f64 * gemm.kernels.count as f64)
        .sum();
    assert_eq!(products / analysis.counted[0].windows as f64, 1_338_956_054_528.0, "of matrix products");
    let mfu = analysis.mfu.unwrap();
    let by_kernels = mfu.by_kernels.unwrap();
    assert_eq!((mfu.model_from, by_kernels.known_share), (ModelFrom::Shapes, 1.0));
    assert_eq!(by_kernels.flops_per_step, Some(1_493_574_877_184.0), "of everything that ran");
    assert_eq!(by_kernels.model_flops_per_step, Some(305_922_048.0 * 4096.0), "without what was computed again");
    assert_eq!((mfu.value, mfu.hfu), (Some(by_kernels.value), Some(by_kernels.hfu)));
}

#[test]
fn everything_is_launched_by_some_operator_and_the_groups_add_up() {
    let analysis = checkpointed();
    let all: i64 = analysis.kernels.iter().map(|kernel| kernel.total_ns).sum();
    let operators: i64 = analysis.operators.iter().map(|operator| operator.kernels.total_ns).sum();
    assert_eq!(operators, all);
    for operator in &analysis.operators {
        let shapes: i64 = operator.shapes.iter().map(|shapes| shapes.kernels.total_ns).sum();
        assert_eq!(shapes, operator.kernels.total_ns, "{:?}", operator.operator);
    }
    assert!(analysis.operators.iter().all(|operator| operator.operator.is_some()));
    let idle: i64 = analysis.operators.iter().map(|operator| operator.kernels.idle_before_ns).sum();
    assert_eq!(idle, analysis.counted[0].partition.idle_ns, "each gap is of what runs next");
    let durations = analysis.kernel_durations.as_ref().unwrap();
    let compute = analysis.kernels.iter().filter(|kernel| kernel.family != Family::Copy);
    assert_eq!(durations.total_ns, compute.map(|kernel| kernel.total_ns).sum::<i64>());
}

#[test]
fn what_a_checkpoint_computes_again_is_told_by_autograd() {
    let phases = &checkpointed().counted[0].breakdown.phases;
    let compute = |phase: Phase| phases.iter().find(|share| share.phase == Some(phase)).unwrap().share.compute_ns;
    let (forward, again) = (compute(Phase::Forward), compute(Phase::Recompute));
    assert!(again * 10 > forward * 3 && again < forward, "the layers again, without the loss: {again} of {forward}");
    assert!(compute(Phase::Backward) > forward);
}

/// Two layers: matrices of 1,835,008 parameters six times for each of 1,024 tokens, and the seven products of attention.
#[test]
fn operators_of_one_recorded_step_are_those_of_all() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures/runs/gpt-operators");
    let run = Run::open(&run).unwrap();
    let steps = StepRange { from: Some(Step(2)), to: None }.into();
    let analysis = analyze(&run, &Selection { steps, ..Selection::default() }, &|_| ()).unwrap();
    let by_kernels = analysis.mfu.as_ref().and_then(|mfu| mfu.by_kernels).unwrap();
    assert_eq!((by_kernels.known_share, by_kernels.flops_per_step), (1.0, Some(13_153_337_344.0)));
    let known = |operator: &&OperatorFigures| operator.operator.is_some();
    let share: f64 = analysis.operators.iter().filter(known).map(|operator| operator.kernels.share).sum();
    assert!(share > 0.99, "{share}");
    let module = |path: &str| analysis.modules.iter().find(|module| module.module.as_deref() == Some(path)).unwrap();
    let (all, block, up) = (module("Gpt"), module("Gpt/blocks/0"), module("Gpt/blocks/0/up"));
    assert_eq!((all.depth, block.depth, up.depth), (0, 2, 3));
    assert!(all.kernels.total_ns > 2 * block.kernels.total_ns && block.kernels.total_ns > up.kernels.total_ns);
    let line = |source: &str| {
        analysis.sources.iter().any(|line| line.source.as_deref().is_some_and(|at| at.ends_with(source)))
    };
    assert!(line("train.py:7 forward") && line("train.py:14 forward"), "{:?}", analysis.sources);
}

/// The trainer's kernels say their FLOPs themselves, and its model's are known by a formula.
#[test]
fn flops_of_our_own_trainers_kernels_are_those_of_its_model() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/samples/single");
    let analysis = analyze(&Run::open(&run).unwrap(), &Selection::default(), &|_| ()).unwrap();
    let mfu = analysis.mfu.unwrap();
    let (by_kernels, causal) = (mfu.by_kernels.unwrap(), mfu.by_convention["causal"]);
    assert!((by_kernels.value / causal - 1.0).abs() < 0.01, "{} {causal}", by_kernels.value);
}
