use stepscope_traces::{
    MemoryCategory::{
        self, Activations, Communication, Gradients, Inputs, OptimizerState, Other, Parameters, Workspace,
    },
    Phase,
};

use crate::{
    pickle_writer::{Frames, Snapshot},
    replay::categories,
};

const MODULE: &str = "/venv/torch/nn/modules/module.py";
const DDP: &str = "/venv/torch/nn/parallel/distributed.py";
const ADAM: &str = "/venv/torch/optim/adamw.py";
const OPTIMIZER: &str = "/venv/torch/optim/optimizer.py";

const BUILD: Frames = &[("<lambda>", MODULE), ("_apply", MODULE), ("cuda", MODULE), ("<module>", "train.py")];
const BUCKET: Frames = &[("c10d::Reducer::initialize_buckets(std::vector<int>)", "??"), ("_ddp_init_helper", DDP)];
const USER: Frames = &[("main", "train.py")];
const LOADER: Frames = &[("pin_memory", "/venv/torch/utils/data/_utils/pin_memory.py"), ("main", "train.py")];
const FORWARD: Frames =
    &[("at::native::silu", "??"), ("forward", "model.py"), ("_call_impl", MODULE), ("forward", DDP)];
const CUBLAS: Frames = &[
    ("at::cuda::setWorkspaceForHandle(cublasContext*&, bool)", "??"),
    ("forward", "model.py"),
    ("_call_impl", MODULE),
];
const LOSS: Frames = &[("cross_entropy", "/venv/torch/nn/functional.py"), ("main", "train.py")];
const ENGINE: (&str, &str) = ("torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)", "??");
const BACKWARD: Frames = &[("at::_ops::mm::call(at::Tensor const&)", "??"), ENGINE, ("clone", "??")];
const BACKWARD_CUBLAS: Frames = &[("at::cuda::setWorkspaceForHandle(cublasContext*&, bool)", "??"), ENGINE];
const RECOMPUTE: Frames =
    &[("at::native::silu", "??"), ("forward", "model.py"), ("recompute_fn", "checkpoint.py"), ENGINE];
const STEP: Frames = &[("_init_group", ADAM), ("step", ADAM), ("main", "train.py")];
const ZERO_GRAD: Frames = &[("zero_grad", OPTIMIZER), ("main", "train.py")];

#[track_caller]
fn check(snapshot: &Snapshot, expected: &[(u64, MemoryCategory)]) {
    let found = categories(&snapshot.import().ranks[0].data.memory);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

/// Two steps with a bit of everything.
fn training() -> Snapshot {
    let mut s = Snapshot::new();
    s.alloc(1, 400, BUILD);
    s.alloc(2, 200, BUILD);
    s.free(1, 400, BUILD);
    s.alloc(3, 200, BUCKET);
    s.alloc(4, 50, USER);
    for step in 0..2 {
        let new = |address: i64| address + 100 * step;
        s.alloc(new(10), 16, LOADER);
        s.alloc(new(11), 16, USER);
        s.alloc(new(12), 64, FORWARD);
        s.alloc(new(13), 64, FORWARD);
        s.free(new(13), 64, FORWARD);
        if step == 0 {
            s.alloc(14, 32, CUBLAS);
        }
        s.alloc(new(15), 96, FORWARD);
        s.alloc(new(16), 96, LOSS);
        s.free(new(15), 96, USER);
        s.alloc(new(17), 96, USER);
        s.alloc(new(18), 24, BACKWARD);
        s.alloc(new(19), 8, RECOMPUTE);
        s.alloc(new(20), 8, RECOMPUTE);
        s.free(new(20), 8, RECOMPUTE);
        s.free(new(16), 96, BACKWARD);
        s.free(new(17), 96, BACKWARD);
        if step == 0 {
            s.alloc(21, 32, BACKWARD_CUBLAS);
        }
        s.alloc(new(22), 200, BACKWARD);
        s.free(new(19), 8, BACKWARD);
        s.free(new(12), 64, BACKWARD);
        s.free(new(18), 24, BACKWARD);
        if step == 0 {
            s.alloc(23, 400, STEP);
        }
        s.alloc(new(24), 40, STEP);
        s.free(new(24), 40, STEP);
        if step == 0 {
            s.free(new(22), 200, ZERO_GRAD);
            s.free(new(10), 16, USER);
            s.free(new(11), 16, USER);
        }
    }
    s
}

#[test]
fn every_block_of_a_training_is_for_something() {
    let mut expected = vec![(1, Parameters), (2, Parameters), (3, Communication), (4, Parameters)];
    for step in 0..2 {
        let mut of_step = vec![
            (10, Inputs),
            (11, Inputs),
            (12, Activations),
            (13, Workspace),
            (14, Workspace),
            (15, Workspace),
            (16, Workspace),
            (17, Activations),
            (18, Workspace),
            (19, Activations),
            (20, Workspace),
            (21, Workspace),
            (22, Gradients),
            (23, OptimizerState),
            (24, Workspace),
        ];
        of_step.retain(|(address, _)| step == 0 || ![14, 21, 23].contains(address));
        expected.extend(of_step.into_iter().map(|(address, category)| (address + 100 * step, category)));
    }
    check(&training(), &expected);
}

#[test]
fn events_are_in_the_pass_of_their_stack() {
    let imported = training().import();
    let phase =
        |address: u64| imported.ranks[0].data.memory.rows().find(|event| event.address == address).unwrap().phase;
    let phases = [2, 12, 18, 19, 23].map(phase);
    let expected = [None, Some(Phase::Forward), Some(Phase::Backward), Some(Phase::Recompute), Some(Phase::Optimizer)];
    assert_eq!(phases, expected);
}

#[test]
fn gradients_that_are_kept_and_accumulated_are_gradients() {
    let mut s = Snapshot::new();
    for step in 0..3 {
        s.alloc(10 + step, 8, FORWARD);
        s.alloc(20 + step, 4, BACKWARD);
        if step == 0 {
            s.alloc(1, 100, BACKWARD);
        }
        s.free(20 + step, 4, BACKWARD);
        s.free(10 + step, 8, BACKWARD);
    }
    let mut expected = vec![(1, Gradients)];
    expected.extend((10..13).map(|address| (address, Activations)));
    expected.extend((20..23).map(|address| (address, Workspace)));
    check(&s, &expected);
}

/// Autograd's own thread runs no Python, and what cuBLAS keeps for itself looks like anything else.
#[test]
fn stacks_of_python_alone_are_enough() {
    const FORWARD: Frames = &[("linear", "functional.py"), ("forward", "model.py"), ("_call_impl", MODULE)];
    let mut s = Snapshot::new();
    s.alloc(1, 100, BUILD);
    for step in 0..2 {
        let new = |address: i64| address + 10 * step;
        s.alloc(new(100), 8, FORWARD);
        if step == 0 {
            s.alloc(2, 32, FORWARD);
            s.alloc(3, 32, &[]);
        }
        s.alloc(new(101), 4, &[]);
        s.alloc(new(102), 100, &[]);
        s.free(new(100), 8, &[]);
        s.free(new(101), 4, &[]);
        s.alloc(new(103), 4, STEP);
        s.free(new(103), 4, STEP);
        s.free(new(102), 100, ZERO_GRAD);
    }
    let mut expected = vec![(1, Parameters), (2, Workspace), (3, Workspace)];
    for step in 0..2 {
        let of_step = [(100, Activations), (101, Workspace), (102, Gradients), (103, Workspace)];
        expected.extend(of_step.map(|(address, category)| (address + 10 * step, category)));
    }
    check(&s, &expected);
}

/// Frees have no stacks if they were not asked for; PyTorch's own annotations tell when optimizers run.
#[test]
fn frees_without_stacks_are_told_by_what_is_around_them() {
    let mut s = Snapshot::new();
    for step in 0..2 {
        let new = |address: i64| address + 10 * step;
        s.annotate("START", "ProfilerStep#0");
        s.alloc(new(100), 8, FORWARD);
        s.alloc(new(101), 4, BACKWARD);
        s.alloc(new(102), 100, BACKWARD);
        s.free(new(101), 4, &[]);
        s.free(new(100), 8, &[]);
        s.alloc(new(103), 4, BACKWARD);
        s.annotate("START", "Optimizer.zero_grad#AdamW.zero_grad");
        s.free(new(102), 100, &[]);
        s.annotate("END", "Optimizer.zero_grad#AdamW.zero_grad");
    }
    let step = [(100, Activations), (101, Workspace), (102, Gradients), (103, Workspace)];
    let mut expected = step.to_vec();
    expected.extend([(110, Activations), (111, Workspace), (112, Gradients), (113, Gradients)]);
    check(&s, &expected);
}

#[test]
fn without_stacks_nothing_is_claimed() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, &[]);
    s.alloc(2, 8, &[]);
    s.free(2, 8, &[]);
    s.segment(0, 100, &[(1, 8, "active_allocated", &[]), (50, 8, "active_allocated", &[])]);
    check(&s, &[(1, Other), (2, Other), (50, Other)]);
}

#[test]
fn where_older_optimizer_state_has_stacks_what_has_none_is_parameters() {
    let mut s = Snapshot::new();
    s.alloc(1, 8, FORWARD);
    s.free(1, 8, BACKWARD);
    let blocks = |of_step| [(100, 400, "active_allocated", &[] as Frames), (600, 400, "active_allocated", of_step)];
    s.segment(0, 2000, &blocks(STEP));
    check(&s, &[(1, Activations), (100, Parameters), (600, OptimizerState)]);
}
