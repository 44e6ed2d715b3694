//! Why training ends early.

use std::path::PathBuf;

use stepscope_collector::{RecordError, libraries::Missing};
use stepscope_plan::{PlanError, text};
use stepscope_traces::{MemoryCategory, Rank, TraceError};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model and the layout do not fit each other.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A model this trainer has no code for.
    #[error("only Llama-style models can be trained: {0}")]
    Model(String),
    /// Settings that make no sense.
    #[error("{0}")]
    Settings(String),
    /// The run directory.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The recording.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another rank failed, so this one cannot go on.
    #[error("rank {} is gone: {why}", rank.0)]
    RankGone {
        /// Which one.
        rank: Rank,
        /// What it said.
        why: String,
    },
    /// A rank keeps the others waiting for too long.
    #[error("rank {} {why}", rank.0)]
    RankLate {
        /// Which one.
        rank: Rank,
        /// For what, and where it is.
        why: String,
    },
    /// Ranks that are processes did not come together.
    #[error("{0}")]
    NotJoined(String),
    /// Whoever listens where rank 0 should has another secret.
    #[error("rank 0 at {address}, port {port}, has another secret than this rank")]
    OtherSecret {
        /// The host of rank 0.
        address: String,
        /// Where it listens.
        port: u16,
    },
    /// A rank has said on stderr why it failed.
    #[error("a rank has failed")]
    Said,
    /// A signal ended the ranks.
    #[error("stopped by {0}")]
    Stopped(&'static str),
    /// Ranks do different things at the same point of the program.
    #[error("ranks disagree: {0}")]
    Disagreement(String),
    /// Work touched memory that other work was using: a missing wait.
    #[error("two streams use the same memory at once: {0}")]
    Race(String),
    /// Data or checkpoints that cannot be read or written.
    #[error("cannot {action} {path}: {why}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What came of it.
        why: String,
    },
    /// No GPU where one was asked for.
    #[error("no GPU found{}", why.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    NoGpu {
        /// Why, where more is known.
        why: Option<Missing>,
    },
    /// A library that is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The device or one of its libraries refused.
    #[error("cannot {action} on the GPU: {why}")]
    Device {
        /// What was tried.
        action: String,
        /// What came of it.
        why: String,
    },
    /// A device has no memory left.
    #[error("out of GPU memory: cannot allocate {} for {category}; in use: {in_use}", text::bytes(*.wanted))]
    OutOfMemory {
        /// How much was asked for.
        wanted: u64,
        /// What for.
        category: MemoryCategory,
        /// What fills it.
        in_use: Box<MemoryInUse>,
    },
    /// A panic, which is a bug of ours.
    #[error("it panicked (a bug in stepscope): {0}")]
    Panicked(String),
    /// Work for a rank that has failed.
    #[error("this rank has already failed")]
    FailedBefore,
    /// A loss or a gradient that is not finite.
    #[error("training diverged: the {what} of step {step} is {value}")]
    Diverged {
        /// At which step, from 0, as everywhere in a recording.
        step: u64,
        /// Of what.
        what: &'static str,
        /// What it was.
        value: f64,
    },
}

impl TrainError {
    /// For `map_err`: names the file and what was tried with it.
    pub(crate) fn file<E: std::fmt::Display>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> TrainError {
        let path = path.into();
        move |error| TrainError::File { action, path, why: error.to_string() }
    }

    /// For `map_err`: says what was tried on the device.
    pub(crate) fn device<E: std::fmt::Debug>(action: impl Into<String>) -> impl FnOnce(E) -> TrainError {
        let action = action.into();
        move |error| TrainError::Device { action, why: format!("{error:?}") }
    }

    /// What a caught panic said.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> TrainError {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        TrainError::Panicked(said.unwrap_or_else(|| "it did not say why".into()))
    }
}

/// What fills a device's memory at one moment.
#[derive(Debug)]
pub struct MemoryInUse {
    /// What is handed out, by category.
    pub categories: Vec<(MemoryCategory, u64)>,
    /// What is taken from the device and not handed out.
    pub fragmentation: u64,
    /// What the device has left, if it says so.
    pub free: Option<u64>,
    /// What it has in all, if it says so.
    pub total: Option<u64>,
}

impl std::fmt::Display for MemoryInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (category, bytes) in &self.categories {
            write!(f, "{category} {}, ", text::bytes(*bytes))?;
        }
        write!(f, "fragmentation {}", text::bytes(self.fragmentation))?;
        match (self.free, self.total) {
            (Some(free), Some(total)) => write!(f, "; {} of {} free", text::bytes(free), text::bytes(total)),
            _ => Ok(()),
        }
    }
}
