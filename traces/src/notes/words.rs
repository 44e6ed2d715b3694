//! Where something that is recorded of a rank comes from, in closed sets of texts, and what was lost on the way.

use super::field::NoteText;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $text:literal $(| $older:literal)*,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)*
        }

        impl NoteText for $name {
            fn read(text: &str) -> Option<$name> {
                match text {
                    $($text $(| $older)* => Some($name::$variant),)*
                    _ => None,
                }
            }

            fn write(&self) -> String {
                match self { $($name::$variant => $text,)* }.to_owned()
            }
        }
    )*};
}

words! {
    /// What recorded a rank, other than its own program.
    CollectorSource {
        /// Our library, inside a program that knows nothing of it.
        Injected = "injected",
        /// PyTorch's profiler.
        Kineto = "PyTorch profiler (Kineto)",
        /// PyTorch's allocator.
        TorchSnapshot = "PyTorch memory snapshot" | "torch-snapshot",
        /// Nsight Systems.
        Nsys = "Nsight Systems",
        /// XLA's profiler.
        Xplane = "XLA profiler (XPlane)",
        /// AMD's profiler of ROCm.
        Rocprof = "rocprofv3",
        /// PyTorch's recorder of collectives.
        FlightRecorder = "PyTorch Flight Recorder",
    }

    /// Where a rank's phases come from. None of these is what the program says alone.
    PhasesFrom {
        /// From hooks in PyTorch, which has none for forward passes.
        TorchHooks = "as PyTorch says; forward is inferred: what comes before backward",
        /// From annotations in a trace of PyTorch's profiler, as far as there are any.
        KinetoAnnotations = "annotated; elsewhere inferred from which thread launched when",
        /// From what JAX calls operations that it differentiates.
        HloNames = "as JAX names operations: jvp is forward, transpose is backward",
    }

    /// Where it is known from which operator launched a kernel.
    OperatorsFrom {
        /// From steps in which the framework said so, and for others from the order of their kernels.
        SampledSteps = "as PyTorch says in some steps; in others inferred: their kernels repeat those",
    }

    /// Where the numbers of a rank's collectives come from.
    SequencesFrom {
        /// From a trace of PyTorch's profiler, as far as it has them.
        Kineto = "as recorded; elsewhere inferred from the order in each step",
    }

    /// Where the categories of a rank's memory come from.
    MemoryCategories {
        /// From when a block came and went, and who asked for it.
        Inferred = "inferred",
        /// Nobody says them.
        Unknown = "unknown",
    }

    /// Where the memory comes from that a rank holds at the start.
    MemoryAtStart {
        /// The profiler says totals with each event.
        FirstTotals = "inferred from the first totals",
    }

    /// Of what the peak of an imported rank's device is.
    PeakFrom {
        /// What was computed in is not known.
        DataSheetInBf16 = "of the device's data sheet, in bf16",
    }

    /// Of what the peak of a recorded program's device is.
    PeakFlopsFrom {
        /// What the program computes in is not known.
        AssumedBf16 = "of bf16, assumed",
    }
}

/// What was lost of what a rank was imported from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostOfTrace {
    /// Events that were dropped or cannot be read.
    pub events: u64,
    /// Bytes that cannot be read.
    pub bytes: u64,
}

impl NoteText for LostOfTrace {
    fn read(text: &str) -> Option<LostOfTrace> {
        let (events, bytes) = text.strip_suffix(" bytes")?.split_once(" events, ")?;
        Some(LostOfTrace { events: events.parse().ok()?, bytes: bytes.parse().ok()? })
    }

    fn write(&self) -> String {
        let LostOfTrace { events, bytes } = self;
        format!("{events} events, {bytes} bytes")
    }
}
