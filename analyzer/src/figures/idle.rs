//! Why a device is idle.

use serde::Serialize;

use crate::stored::{fields, one_of};

/// Why nothing runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleReason {
    /// The host launches too slowly: what runs next was launched after everything else was over.
    Launches,
    /// The host had waited for the device, and had nothing launched when it went on.
    Synchronization,
    /// The program waits for data.
    Input,
    /// The host takes or gives back memory of the device.
    Allocation,
    /// A call that launches something takes long: it loads a kernel, or another thread holds the driver.
    SlowLaunch,
    /// The recorder itself takes time.
    Recording,
    /// The program evaluates.
    Evaluation,
    /// The program saves or loads a checkpoint.
    Checkpoint,
    /// What runs next was launched in time, and waits for something on the device.
    Queue,
    /// Nobody knows.
    Unknown,
}

one_of!(IdleReason: IdleReason::ALL);

impl IdleReason {
    /// Every reason.
    pub const ALL: [IdleReason; 10] = [
        IdleReason::Launches,
        IdleReason::Synchronization,
        IdleReason::Input,
        IdleReason::Allocation,
        IdleReason::SlowLaunch,
        IdleReason::Recording,
        IdleReason::Evaluation,
        IdleReason::Checkpoint,
        IdleReason::Queue,
        IdleReason::Unknown,
    ];

    /// Whether the host can launch nothing meanwhile, so that it is no longer ahead of the device.
    pub(crate) fn holds_up_the_host(self) -> bool {
        use IdleReason::{Allocation, Checkpoint, Input, Recording, SlowLaunch, Synchronization};
        matches!(self, Synchronization | Input | Allocation | SlowLaunch | Recording | Checkpoint)
    }

    /// What the device waits for, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            IdleReason::Launches => "the host launches late",
            IdleReason::Synchronization => "the host had synchronized",
            IdleReason::Input => "waiting for data",
            IdleReason::Allocation => "allocating memory",
            IdleReason::SlowLaunch => "blocked in launch calls",
            IdleReason::Recording => "the recorder at work",
            IdleReason::Evaluation => "evaluating",
            IdleReason::Checkpoint => "checkpointing",
            IdleReason::Queue => "launched, not yet started",
            IdleReason::Unknown => "reason not known",
        }
    }
}

/// Idle time for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdleShare {
    /// The reason.
    pub reason: IdleReason,
    /// How long.
    pub time_ns: i64,
}

fields!(IdleShare { reason, time_ns });
