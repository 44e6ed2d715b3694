//! What a rank says of how it was recorded: `collector` in `rank.json`.
//!
//! Each line of the table below is a note. Its type says how it is written there and how it is read, in one place, so that
//! nobody writes what nobody reads. On disk a note is a text that people can read, too.

mod devices;
mod field;
mod found_out;
mod in_flight;
mod memory_times;
mod pauses;
mod program_model;
mod rank_from;
mod recording_cost;
mod settings;
mod stack_dump;
mod torch;
mod words;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use field::NoteField;

pub use devices::{AttentionNote, CuptiNote, NcclNote, NvmlNote, StreamsNote};
pub use found_out::{FailedSources, HeldMemory, NamedGroup, NamedGroups, OutOfMemory};
pub use in_flight::{AskedOperation, GroupProgress, InFlight, OperationState};
pub use memory_times::MemoryTimes;
pub use pauses::Pauses;
pub use program_model::ProgramModel;
pub use rank_from::RankFrom;
pub use recording_cost::{MeasuredCost, RecordingCost};
pub use settings::RecorderSettings;
pub use stack_dump::{NativeThread, PythonThread, StackDump};
pub use torch::{TorchMemory, TorchNotes};
pub use words::{
    CollectorSource, LostOfTrace, MemoryAtStart, MemoryCategories, OperatorsFrom, PeakFlopsFrom, PeakFrom, PhasesFrom,
    SequencesFrom,
};

macro_rules! notes {
    ($($(#[$doc:meta])* $variant:ident in $key:ident: $type:ty,)*) => {
        /// How a rank was recorded, as it says itself.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
        pub struct CollectorNotes {
            $($(#[$doc])* pub $key: Option<$type>,)*
            /// What this version does not know or does not understand, as it was read.
            pub others: Map<String, Value>,
        }

        /// One thing that a rank says of how it is recorded.
        #[derive(Clone, Debug, PartialEq)]
        pub enum CollectorNote {
            $($(#[$doc])* $variant($type),)*
        }

        impl From<Map<String, Value>> for CollectorNotes {
            fn from(mut others: Map<String, Value>) -> CollectorNotes {
                CollectorNotes { $($key: NoteField::take(&mut others, stringify!($key)),)* others }
            }
        }

        impl From<CollectorNotes> for Map<String, Value> {
            fn from(notes: CollectorNotes) -> Map<String, Value> {
                let mut map = notes.others;
                $(notes.$key.into_iter().for_each(|note| note.put(&mut map, stringify!($key)));)*
                map
            }
        }

        impl CollectorNote {
            fn put(self, map: &mut Map<String, Value>) {
                match self {
                    $(CollectorNote::$variant(note) => note.put(map, stringify!($key)),)*
                }
            }
        }
    };
}

notes! {
    /// What recorded it, unless the program did so itself.
    Source in source: CollectorSource,
    /// How the recorder was set up.
    Settings in settings: RecorderSettings,
    /// The command line of its process.
    Program in program: String,
    /// The model that its program trains.
    ProgramModel in program_model: ProgramModel,
    /// The groups of ranks that its program has made.
    ProcessGroups in process_groups: NamedGroups,
    /// What could not be found out about its program, and why.
    FailedSources in failed_sources: FailedSources,
    /// The name of the file it was imported from.
    File in file: String,
    /// How its number was found.
    RankFrom in rank_from: RankFrom,
    /// How many ranks are on its device, with it.
    RanksOnDevice in ranks_on_device: u64,
    /// How many GPUs its process uses besides the one that is recorded.
    OtherGpus in other_gpus: u64,
    /// The UUID of its GPU, which tells whether ranks share one.
    GpuUuid in gpu_uuid: String,
    /// The number of its device in the process.
    Device in device: u32,
    /// Whether CUPTI records what runs on its GPU.
    Cupti in cupti: CuptiNote,
    /// How often it was not recorded because its program's own profiler ran.
    OtherProfiler in other_profiler: Pauses,
    /// What recording costs it, where that is kept low.
    RecordingCost in recording_cost: RecordingCost,
    /// How far off CUPTI's times may be, at worst.
    CuptiClockUncertainty in cupti_clock_uncertainty_ns: i64,
    /// The least time from a launch to its start, which is not below zero if clocks are right.
    CuptiLeastLaunchDelay in cupti_least_launch_delay_ns: i64,
    /// How much work ran of whose launch nothing is known.
    CuptiUnannotated in cupti_unannotated: u64,
    /// How many notes of launches were lost.
    CuptiLostAnnotations in cupti_lost_annotations: u64,
    /// What numbers its streams, unless the program does.
    Streams in streams: StreamsNote,
    /// What NVML does not record.
    Nvml in nvml: NvmlNote,
    /// Whether NCCL tells of its operations.
    Nccl in nccl: NcclNote,
    /// Who computes attention.
    Attention in attention: AttentionNote,
    /// Of what the peak of its device is, as the injected library has it.
    PeakFlops in peak_flops: PeakFlopsFrom,
    /// Of what the peak of its device is, as an importer has it.
    Peak in peak: PeakFrom,
    /// Where its phases come from, unless the program says them all.
    Phases in phases: PhasesFrom,
    /// Where it is known from who launched its kernels, unless all is recorded.
    Operators in operators: OperatorsFrom,
    /// Where the numbers of its collectives come from, unless the program says them.
    Sequence in sequence: SequencesFrom,
    /// Where the categories of its memory come from, unless the program says them.
    MemoryCategories in memory_categories: MemoryCategories,
    /// Where the memory comes from that it holds at the start.
    MemoryAtStart in memory_at_start: MemoryAtStart,
    /// Whose clock the times of its memory are.
    MemoryTimes in memory_times: MemoryTimes,
    /// Of how many events they are the host's all the same.
    MemoryTimesOfHost in memory_times_of_host: u64,
    /// How PyTorch's memory is recorded.
    Torch in torch_memory: TorchNotes,
    /// How many blocks a snapshot has from before its history.
    BlocksFromBefore in blocks_from_before: u64,
    /// By how much the allocator has rounded up what is there at the end of a snapshot.
    RoundingBytesAtEnd in rounding_bytes_at_end: u64,
    /// Where memory ran out.
    OutOfMemory in out_of_memory: OutOfMemory,
    /// What its program raised and nobody caught, as Python prints it.
    Exception in exception: String,
    /// Communication that was not over when its recorder wrote down what it knew.
    InFlight in in_flight: InFlight,
    /// The same as PyTorch's Flight Recorder tells it, when somebody asked since no step ended.
    FlightRecorder in flight_recorder: InFlight,
    /// Where its threads were when somebody asked since no step ended.
    StackDump in stack_dump: StackDump,
    /// How many events of a snapshot are of a kind that is not known.
    UnknownEvents in unknown_events: u64,
    /// What was lost of what it was imported from.
    LostOfTheTrace in lost_of_the_trace: LostOfTrace,
}

impl CollectorNotes {
    /// Adds a note, in place of an earlier one.
    pub fn add(&mut self, note: CollectorNote) {
        self.change(|map| note.put(map));
    }

    /// Adds what another source says, in place of what is said here.
    pub(crate) fn add_all(&mut self, others: CollectorNotes) {
        self.change(|map| map.extend(Map::from(others)));
    }

    /// Keys are what notes replace each other by: a note of several may leave some of them as they are.
    fn change(&mut self, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut map = Map::from(std::mem::take(self));
        change(&mut map);
        *self = map.into();
    }
}

#[cfg(test)]
mod tests;
