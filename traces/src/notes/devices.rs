//! What looks at a rank's device and computes on it, and why something does not.

use super::field::NoteText;

const CUPTI: &str = "CUPTI, API version ";
const NOT_RECORDED: &str = "not recorded: ";
const NOT_SAMPLED: &str = "not sampled: ";
const NCCL: &str = "operations by NCCL's profiler interface, version ";
const NUMBERED_BY_CUPTI: &str = "numbered by CUPTI: ";
const CUDNN: &str = "cuDNN";
const OUR_OWN: &str = "our own, since ";

/// Whether CUPTI records what runs on a rank's GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CuptiNote {
    /// It does.
    Recorded {
        /// The version of its interface.
        api_version: u32,
    },
    /// It does not.
    NotRecorded {
        /// Why.
        why: String,
    },
}

impl NoteText for CuptiNote {
    fn read(text: &str) -> Option<CuptiNote> {
        match text.strip_prefix(NOT_RECORDED) {
            Some(why) => Some(CuptiNote::NotRecorded { why: why.to_owned() }),
            None => Some(CuptiNote::Recorded { api_version: text.strip_prefix(CUPTI)?.parse().ok()? }),
        }
    }

    fn write(&self) -> String {
        match self {
            CuptiNote::Recorded { api_version } => format!("{CUPTI}{api_version}"),
            CuptiNote::NotRecorded { why } => format!("{NOT_RECORDED}{why}"),
        }
    }
}

/// What NVML does not record of a rank's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmlNote {
    /// Nothing at all.
    NotSampled {
        /// Why.
        why: String,
    },
    /// Some counters, which the device or its driver does not have.
    LeftOut {
        /// Which, and why.
        counters: String,
    },
}

impl NoteText for NvmlNote {
    fn read(text: &str) -> Option<NvmlNote> {
        match text.strip_prefix(NOT_SAMPLED) {
            Some(why) => Some(NvmlNote::NotSampled { why: why.to_owned() }),
            None => Some(NvmlNote::LeftOut { counters: text.strip_prefix(NOT_RECORDED)?.to_owned() }),
        }
    }

    fn write(&self) -> String {
        match self {
            NvmlNote::NotSampled { why } => format!("{NOT_SAMPLED}{why}"),
            NvmlNote::LeftOut { counters } => format!("{NOT_RECORDED}{counters}"),
        }
    }
}

/// NCCL tells of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclNote {
    /// The version of its interface for profilers.
    pub profiler_version: u8,
}

impl NoteText for NcclNote {
    fn read(text: &str) -> Option<NcclNote> {
        Some(NcclNote { profiler_version: text.strip_prefix(NCCL)?.parse().ok()? })
    }

    fn write(&self) -> String {
        format!("{NCCL}{}", self.profiler_version)
    }
}

/// CUPTI numbers a rank's streams, and not the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsNote {
    /// Why.
    pub why: String,
}

impl NoteText for StreamsNote {
    fn read(text: &str) -> Option<StreamsNote> {
        Some(StreamsNote { why: text.strip_prefix(NUMBERED_BY_CUPTI)?.to_owned() })
    }

    fn write(&self) -> String {
        format!("{NUMBERED_BY_CUPTI}{}", self.why)
    }
}

/// Who computes attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttentionNote {
    /// cuDNN.
    Cudnn,
    /// Kernels of the trainer's own.
    OurOwn {
        /// Why not cuDNN.
        why: String,
    },
}

impl NoteText for AttentionNote {
    fn read(text: &str) -> Option<AttentionNote> {
        match text {
            CUDNN => Some(AttentionNote::Cudnn),
            _ => Some(AttentionNote::OurOwn { why: text.strip_prefix(OUR_OWN)?.to_owned() }),
        }
    }

    fn write(&self) -> String {
        match self {
            AttentionNote::Cudnn => CUDNN.to_owned(),
            AttentionNote::OurOwn { why } => format!("{OUR_OWN}{why}"),
        }
    }
}
