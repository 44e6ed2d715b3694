//! What a stack says of an allocation: who asked for it, and in which pass of the training.
//!
//! Snapshots have Python frames, C++ frames or both, the innermost first. A frame is looked at once and reduced to a few
//! bits, and a stack to those of its frames.

use super::calls::CallsId;

/// The pass of a training step that a stack is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// A module is called.
    Forward,
    /// Autograd runs.
    Backward,
    /// An optimizer runs, `zero_grad` included.
    Optimizer,
}

/// What a stack, or one frame of it, tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stack {
    /// The pass of the innermost frame that is in one.
    pub(super) pass: Option<Pass>,
    signs: u16,
    /// The calls of Python on it.
    pub(super) calls: CallsId,
}

/// Things that a frame can be a sign of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Sign {
    /// There are frames of Python.
    Python = 1,
    /// There are frames of C++.
    Native = 1 << 1,
    /// Autograd is somewhere on the stack.
    Autograd = 1 << 2,
    /// A library takes scratch for itself: cuBLAS and cuDNN.
    Workspace = 1 << 3,
    /// A collective, or the reducer of `DistributedDataParallel` with its buckets.
    Collective = 1 << 4,
    /// `FullyShardedDataParallel` gathers or shards.
    Sharding = 1 << 5,
    /// A module is built, moved, cast or loaded.
    Module = 1 << 6,
    /// A loss over the vocabulary.
    Loss = 1 << 7,
    /// A batch is loaded or drawn.
    Data = 1 << 8,
    /// Gradients are dropped.
    ZeroGrad = 1 << 9,
    /// A function gets batches, by its name.
    Batch = 1 << 10,
}

/// What one text tells as the name of a frame, and as its file. A text is looked at once, however many frames have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints(u32);

/// Things that a text can hint at.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Hint {
    PythonFile = 1,
    OptimizerFile = 1 << 1,
    AutogradFile = 1 << 2,
    ModuleFile = 1 << 3,
    InitializationFile = 1 << 4,
    CollectiveFile = 1 << 5,
    ShardingFile = 1 << 6,
    DataFile = 1 << 7,
    Forward = 1 << 8,
    ModuleCall = 1 << 9,
    Backward = 1 << 10,
    Autograd = 1 << 11,
    Building = 1 << 12,
    Loss = 1 << 13,
    NativeAutograd = 1 << 14,
    NativeWorkspace = 1 << 15,
    NativeCollective = 1 << 16,
    NativeData = 1 << 17,
    ZeroGrad = 1 << 18,
    Batch = 1 << 19,
}

impl Hints {
    /// What a text tells.
    pub(super) fn of(text: &str) -> Hints {
        let hints = if let Some(file) = text.strip_suffix(".py") { Hints::of_file(file) } else { Hints::of_name(text) };
        Hints(hints.iter().filter(|(_, is_there)| *is_there).fold(0, |all, (hint, _)| all | *hint as u32))
    }

    fn of_file(file: &str) -> Vec<(Hint, bool)> {
        let within = |part: &str| file.contains(part);
        // Those of PyTorch, Apex, Megatron and others are called so, or lie in a directory that is.
        let is_optimizer = |part: &str| matches!(part, "optim" | "optimizer" | "optimizers");
        let collective =
            ["torch/distributed/distributed_c10d", "torch/distributed/utils", "torch/nn/parallel/distributed"];
        vec![
            (Hint::PythonFile, true),
            (Hint::OptimizerFile, file.split(['/', '\\']).any(is_optimizer)),
            (Hint::AutogradFile, within("torch/autograd/")),
            (Hint::ModuleFile, within("torch/nn/modules/")),
            (Hint::InitializationFile, within("torch/nn/init")),
            (Hint::CollectiveFile, collective.iter().any(|end| file.ends_with(end))),
            (Hint::ShardingFile, within("torch/distributed/fsdp/") || within("torch/distributed/_composable/fsdp/")),
            (Hint::DataFile, within("torch/utils/data/")),
        ]
    }

    fn of_name(name: &str) -> Vec<(Hint, bool)> {
        let name = name.replace("(anonymous namespace)::", "");
        // Types stand in the list of arguments, too: only what is called counts.
        let called = name.split('(').next().unwrap_or(&name);
        let has = |part: &str| called.contains(part);
        vec![
            (Hint::Forward, called == "forward"),
            (Hint::ModuleCall, called == "_call_impl"),
            (Hint::Backward, matches!(called, "backward" | "post_backward" | "_post_backward_hook")),
            (Hint::ZeroGrad, called == "zero_grad"),
            (Hint::Autograd, matches!(called, "_engine_run_backward" | "_make_grads" | "grad")),
            (Hint::Building, matches!(called, "_apply" | "__init__" | "reset_parameters" | "_load_from_state_dict")),
            (Hint::Batch, gets_batches(called)),
            (Hint::Loss, has("cross_entropy") || has("CrossEntropy") || has("nll_loss")),
            (Hint::NativeAutograd, has("torch::autograd::Engine::")),
            (Hint::NativeWorkspace, has("Workspace") || has("workspace")),
            (Hint::NativeCollective, called.starts_with("c10d::")),
            (Hint::NativeData, has("at::native::randint") || has("at::native::randperm")),
        ]
    }

    fn has(self, hint: Hint) -> bool {
        self.0 & hint as u32 != 0
    }
}

impl Stack {
    /// What one frame tells.
    pub(super) fn of_frame(name: Hints, file: Hints) -> Stack {
        let stack = if file.has(Hint::PythonFile) { Stack::of_python(name, file) } else { Stack::of_native(name) };
        stack.with_if(Sign::Loss, name.has(Hint::Loss)).with_if(Sign::ZeroGrad, name.has(Hint::ZeroGrad))
    }

    fn of_python(name: Hints, file: Hints) -> Stack {
        let autograd = name.has(Hint::Backward) || (name.has(Hint::Autograd) && file.has(Hint::AutogradFile));
        let module = file.has(Hint::ModuleFile);
        let pass = if file.has(Hint::OptimizerFile) {
            Some(Pass::Optimizer)
        } else if autograd {
            Some(Pass::Backward)
        } else if name.has(Hint::Forward) || (module && name.has(Hint::ModuleCall)) {
            Some(Pass::Forward)
        } else {
            None
        };
        let builds = (module && name.has(Hint::Building)) || file.has(Hint::InitializationFile);
        Stack { pass, signs: Sign::Python as u16, ..Stack::default() }
            .with_if(Sign::Autograd, pass == Some(Pass::Backward))
            .with_if(Sign::Module, builds)
            .with_if(Sign::Collective, file.has(Hint::CollectiveFile))
            .with_if(Sign::Sharding, file.has(Hint::ShardingFile))
            .with_if(Sign::Data, file.has(Hint::DataFile))
            .with_if(Sign::Batch, name.has(Hint::Batch))
    }

    fn of_native(name: Hints) -> Stack {
        let autograd = name.has(Hint::NativeAutograd);
        Stack { pass: autograd.then_some(Pass::Backward), signs: Sign::Native as u16, ..Stack::default() }
            .with_if(Sign::Autograd, autograd)
            .with_if(Sign::Workspace, name.has(Hint::NativeWorkspace))
            .with_if(Sign::Collective, name.has(Hint::NativeCollective))
            .with_if(Sign::Data, name.has(Hint::NativeData))
    }

    /// As a stack would be in a pass of the training, for histories without stacks.
    pub(super) fn of_pass(pass: Option<Pass>) -> Stack {
        Stack { pass, ..Stack::default() }.with_if(Sign::Autograd, pass == Some(Pass::Backward))
    }

    /// As a stack would be where forward work is repeated for the backward pass.
    pub(super) fn of_recomputation() -> Stack {
        Stack { pass: Some(Pass::Forward), signs: Sign::Autograd as u16, ..Stack::default() }
    }

    /// This stack, with one more frame further out.
    pub(super) fn within(self, outer: Stack) -> Stack {
        // Every allocation below a wrapper has it on its stack. Where the wrapper allocates, it is the innermost of Python.
        let both = self.has(Sign::Python) && outer.has(Sign::Python);
        let of_innermost = Sign::Collective as u16 | Sign::Sharding as u16 | Sign::Batch as u16;
        let left_out = if both { of_innermost } else { 0 };
        Stack { pass: self.pass.or(outer.pass), signs: self.signs | (outer.signs & !left_out), ..self }
    }

    /// The same with these calls.
    pub(super) fn calling(self, calls: CallsId) -> Stack {
        Stack { calls, ..self }
    }

    /// Whether a sign is there.
    pub(super) fn has(self, sign: Sign) -> bool {
        self.signs & sign as u16 != 0
    }

    fn with_if(self, sign: Sign, is_there: bool) -> Stack {
        Stack { signs: self.signs | if is_there { sign as u16 } else { 0 }, ..self }
    }

    /// Whether forward work is repeated for the backward pass.
    pub(super) fn is_recomputation(self) -> bool {
        self.pass == Some(Pass::Forward) && self.has(Sign::Autograd)
    }

    /// The pass that goes on meanwhile: repeated forward work is part of the backward pass.
    pub(super) fn surrounding_pass(self) -> Option<Pass> {
        if self.is_recomputation() { Some(Pass::Backward) } else { self.pass }
    }
}

/// Whether a function is named for getting batches: `get_batch`, `batch_generator`.
fn gets_batches(name: &str) -> bool {
    let is_one_of = |known: &[&str]| name.split('_').any(|word| known.contains(&word.to_ascii_lowercase().as_str()));
    is_one_of(&["batch", "batches", "microbatch", "microbatches"])
        && is_one_of(&["get", "next", "load", "fetch", "prefetch", "generator", "generate", "iterator", "iter"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "/site-packages/torch/nn/modules/module.py";
    const DDP: &str = "/site-packages/torch/nn/parallel/distributed.py";
    const ADAM: &str = "/site-packages/torch/optim/adam.py";
    const ENGINE: (&str, &str) = ("torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)", "??");

    fn frame((name, file): &(&str, &str)) -> Stack {
        Stack::of_frame(Hints::of(name), Hints::of(file))
    }

    fn stack(frames: &[(&str, &str)]) -> Stack {
        frames.iter().map(frame).reduce(Stack::within).unwrap_or_default()
    }

    #[test]
    fn the_innermost_pass_counts() {
        let forward = ("forward", "train.py");
        for (frames, pass) in [
            (vec![("main", "train.py")], None),
            (vec![("main", "train_optimized.py")], None),
            (vec![("relu", "functional.py"), forward, ("_call_impl", MODULE)], Some(Pass::Forward)),
            (vec![("at::mm", "??"), ENGINE], Some(Pass::Backward)),
            (
                vec![("_make_grads", "torch/autograd/__init__.py"), ("backward", "torch/_tensor.py")],
                Some(Pass::Backward),
            ),
            (vec![("_init_group", ADAM), ("step", ADAM)], Some(Pass::Optimizer)),
            // Some trainers run both passes inside of the optimizer's step.
            (vec![forward, ("closure", "train.py"), ("step", ADAM)], Some(Pass::Forward)),
        ] {
            assert_eq!(stack(&frames).pass, pass, "{frames:?}");
            assert!(!stack(&frames).is_recomputation());
        }
        let recomputed = stack(&[forward, ("recompute_fn", "torch/utils/checkpoint.py"), ENGINE]);
        assert!(recomputed.is_recomputation());
        assert_eq!(recomputed.surrounding_pass(), Some(Pass::Backward));
        let its_backward = stack(&[("backward", "layer.py"), forward, ENGINE]);
        assert!(!its_backward.is_recomputation());
    }

    #[test]
    fn functions_that_get_batches_are_known_by_their_names() {
        for (name, gets) in [
            ("batch_generator", true),
            ("get_batch", true),
            ("_next_batch", true),
            ("load_batches", true),
            ("train_batch", false),
            ("batch_norm", false),
            ("get_data_parallel_group", false),
            ("_load_from_state_dict", false),
        ] {
            assert_eq!(stack(&[("at::empty", "??"), (name, "train.py")]).has(Sign::Batch), gets, "{name}");
            // What it calls says itself what it does.
            assert!(!stack(&[("build", "model.py"), (name, "train.py")]).has(Sign::Batch), "{name}");
        }
    }

    #[test]
    fn a_wrapper_has_part_in_what_it_allocates_itself() {
        let forward = [("linear", "functional.py"), ("forward", DDP)];
        assert!(!stack(&forward).has(Sign::Collective));
        assert!(stack(&[("_pre_forward", DDP), ("forward", DDP)]).has(Sign::Collective));
        let reducer = ("c10d::Reducer::initialize_buckets(std::vector<Bucket>)", "??");
        assert!(stack(&[("at::empty", ""), reducer, ("_pre_forward", DDP)]).has(Sign::Collective));
        let fsdp = "torch/distributed/fsdp/_flat_param.py";
        assert!(stack(&[("unshard", fsdp), ("forward", "train.py")]).has(Sign::Sharding));
        assert!(!stack(&[("linear", "functional.py"), ("unshard", fsdp)]).has(Sign::Sharding));
    }

    #[test]
    fn signs_are_in_names_of_what_is_called() {
        for (name, file, sign) in [
            ("at::cuda::setWorkspaceForHandle(cublasContext*&)", "??", Sign::Workspace),
            ("at::native::(anonymous namespace)::Workspace::Workspace(unsigned long)", "", Sign::Workspace),
            ("at::native::cross_entropy_loss_symint(at::Tensor)", "", Sign::Loss),
            ("cross_entropy", "torch/nn/functional.py", Sign::Loss),
            ("at::native::randint(long)", "??", Sign::Data),
            ("__next__", "torch/utils/data/dataloader.py", Sign::Data),
            ("_apply", MODULE, Sign::Module),
            ("__init__", "torch/nn/modules/linear.py", Sign::Module),
        ] {
            assert!(frame(&(name, file)).has(sign), "{name}");
        }
        let only_arguments = frame(&("f(c10d::Reducer, Workspace)", "??"));
        assert!(!only_arguments.has(Sign::Collective) && !only_arguments.has(Sign::Workspace));
    }
}
