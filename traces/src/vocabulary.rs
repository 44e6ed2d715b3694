//! The closed sets of words a run uses. Data is sorted into them once, where it comes in.
//!
//! In a file such a column is an Arrow dictionary with `u8` keys, so any reader shows the words. The order of the
//! words is part of the schema version: words are added at the end, and only with a new version.

use serde::{Deserialize, Serialize};

use crate::{
    columns::{Cell, dictionary_type},
    ids::CounterId,
};

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of its code.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word for it in files, in JSON and on screen.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl Cell for $name {
            type Number = u8;

            fn data_type() -> arrow_schema::DataType {
                dictionary_type()
            }

            fn words() -> Vec<&'static str> {
                Self::ALL.iter().map(|value| value.word()).collect()
            }

            fn to_number(self) -> u8 {
                self as u8
            }

            fn from_number(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    )*};
}

vocabulary! {
    /// What a span is: work on a stream, or an annotation that frames such work.
    SpanKind {
        /// A compute kernel.
        Kernel = "kernel",
        /// A memory copy.
        Copy = "copy",
        /// A memory fill.
        Set = "set",
        /// An all-reduce.
        AllReduce = "all_reduce",
        /// An all-gather.
        AllGather = "all_gather",
        /// A reduce-scatter.
        ReduceScatter = "reduce_scatter",
        /// A broadcast.
        Broadcast = "broadcast",
        /// A reduction to one rank.
        Reduce = "reduce",
        /// An all-to-all.
        AllToAll = "all_to_all",
        /// A barrier.
        Barrier = "barrier",
        /// A point-to-point send.
        Send = "send",
        /// A point-to-point receive.
        Receive = "receive",
        /// Communication whose operation is not known.
        Communication = "communication",
        /// Annotation: an optimizer step.
        Step = "step",
        /// Annotation: a micro-batch.
        MicroBatch = "micro_batch",
        /// Annotation: a phase of a step.
        Phase = "phase",
        /// Annotation: a layer.
        Layer = "layer",
        /// Annotation: a range the program named itself (NVTX, for example).
        Range = "range",
        /// A call on the host that launches work, or waits for the device, or takes memory of it.
        Launch = "launch",
    }

    /// The phase of a training step.
    Phase {
        /// The forward pass.
        Forward = "forward",
        /// The backward pass.
        Backward = "backward",
        /// Forward work repeated during the backward pass.
        Recompute = "recompute",
        /// Gradient reduction, clipping and the weight update.
        Optimizer = "optimizer",
        /// Reading and preparing the batch.
        Data = "data",
        /// Evaluation without gradients.
        Evaluation = "evaluation",
        /// Writing or reading a checkpoint.
        Checkpoint = "checkpoint",
    }

    /// What memory is used for.
    MemoryCategory {
        /// Parameters in the precision they compute in.
        Parameters = "parameters",
        /// Gradients.
        Gradients = "gradients",
        /// Moments and master weights.
        OptimizerState = "optimizer_state",
        /// Kept for the backward pass, recomputed ones included.
        Activations = "activations",
        /// Gather and reduce buffers.
        Communication = "communication",
        /// Scratch inside an operation, logits and their gradient included.
        Workspace = "workspace",
        /// The batch.
        Inputs = "inputs",
        /// Everything else.
        Other = "other",
    }

    /// What happened to memory.
    MemoryOperation {
        /// A block was handed out.
        Alloc = "alloc",
        /// A block came back.
        Free = "free",
        /// The allocator took memory from the device.
        Reserve = "reserve",
        /// The allocator gave memory back to the device.
        Release = "release",
    }

    /// The counters Stepscope itself writes; a program may add its own by name.
    Counter {
        /// Training loss.
        Loss = "loss",
        /// Tokens of a step, over the whole job.
        Tokens = "tokens",
        /// Norm of the gradient.
        GradientNorm = "gradient_norm",
        /// Events the recorder had no room for, since it began.
        DroppedEvents = "recorder.dropped_events",
        /// Names the recorder had no room for, since it began.
        DroppedNames = "recorder.dropped_names",
        /// Events recorded, since it began.
        RecordedEvents = "recorder.recorded_events",
        /// Bytes written to the run directory, since it began.
        WrittenBytes = "recorder.written_bytes",
        /// Time the program's threads spent recording, since it began: sampled.
        HotPathTime = "recorder.hot_path_ns",
        /// Time the writer thread was busy, since it began.
        WriterTime = "recorder.writer_ns",
    }
}

impl SpanKind {
    /// Whether this is a collective, a send or a receive.
    pub fn is_communication(self) -> bool {
        use SpanKind::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Receive, Reduce, ReduceScatter, Send};
        matches!(self, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce | AllToAll | Barrier | Send | Receive)
            || self == SpanKind::Communication
    }

    /// Whether this is a copy or a fill.
    pub fn is_copy(self) -> bool {
        matches!(self, SpanKind::Copy | SpanKind::Set)
    }

    /// Whether this frames other work instead of being work.
    pub fn is_annotation(self) -> bool {
        use SpanKind::{Layer, MicroBatch, Phase, Range, Step};
        matches!(self, Step | MicroBatch | Phase | Layer | Range)
    }
}

impl Counter {
    /// The id this counter has in every run.
    pub fn id(self) -> CounterId {
        CounterId(self as u16)
    }
}

impl From<Counter> for CounterId {
    fn from(counter: Counter) -> CounterId {
        counter.id()
    }
}
impl MemoryCategory {
    /// Its name where people read it.
    pub fn spelled(self) -> String {
        self.word().replace('_', " ")
    }
}

/// Who holds memory of the device beside what a program records of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryHolder {
    /// NCCL.
    Nccl,
    /// cuBLAS.
    Cublas,
    /// cuDNN.
    Cudnn,
    /// NVSHMEM.
    Nvshmem,
    /// PyTorch's symmetric memory.
    SymmetricMemory,
    /// Another library.
    Other,
    /// The program and its allocator, which say themselves what they take; and whoever cannot be told.
    Program,
    /// Code and data of the kernels that were loaded.
    Modules,
    /// What kernels spill to, and their stacks.
    LocalMemory,
}

impl MemoryHolder {
    /// Each of them.
    pub const ALL: [MemoryHolder; 9] = [
        MemoryHolder::Nccl,
        MemoryHolder::Cublas,
        MemoryHolder::Cudnn,
        MemoryHolder::Nvshmem,
        MemoryHolder::SymmetricMemory,
        MemoryHolder::Other,
        MemoryHolder::Program,
        MemoryHolder::Modules,
        MemoryHolder::LocalMemory,
    ];

    /// Its counter in a recording.
    pub const fn counter(self) -> &'static str {
        match self {
            MemoryHolder::Nccl => "memory.nccl",
            MemoryHolder::Cublas => "memory.cublas",
            MemoryHolder::Cudnn => "memory.cudnn",
            MemoryHolder::Nvshmem => "memory.nvshmem",
            MemoryHolder::SymmetricMemory => "memory.symmetric",
            MemoryHolder::Other => "memory.other",
            MemoryHolder::Program => "memory.program",
            MemoryHolder::Modules => "memory.modules",
            MemoryHolder::LocalMemory => "memory.local",
        }
    }
}
