//! The messages of XLA's profiles and of HLO, with the fields that we read, in the numbers of their schemas.

use prost::Message;

/// Something that happened on a line.
#[derive(Clone, PartialEq, Message)]
pub(super) struct XEvent {
    #[prost(int64, tag = "1")]
    pub(super) metadata_id: i64,
    /// From the beginning of the line on. What only counts how often something was has none.
    #[prost(int64, optional, tag = "2")]
    pub(super) offset_ps: Option<i64>,
    #[prost(int64, tag = "3")]
    pub(super) duration_ps: i64,
    #[prost(message, repeated, tag = "4")]
    pub(super) stats: Vec<XStat>,
    #[prost(int64, optional, tag = "5")]
    pub(super) occurrences: Option<i64>,
}

/// Something that is said of a plane, of an event, or of all events of a kind.
#[derive(Clone, PartialEq, Message)]
pub(super) struct XStat {
    #[prost(int64, tag = "1")]
    pub(super) metadata_id: i64,
    #[prost(oneof = "XStatValue", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) value: Option<XStatValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum XStatValue {
    #[prost(double, tag = "2")]
    Double(f64),
    #[prost(uint64, tag = "3")]
    Unsigned(u64),
    #[prost(int64, tag = "4")]
    Signed(i64),
    #[prost(string, tag = "5")]
    Text(String),
    #[prost(bytes, tag = "6")]
    Bytes(Vec<u8>),
    /// A text that is the name of a kind of stats.
    #[prost(uint64, tag = "7")]
    Reference(u64),
}

/// What all events of a kind have in common.
#[derive(Clone, PartialEq, Message)]
pub(super) struct XEventMetadata {
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) display_name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) stats: Vec<XStat>,
}

/// A kind of stats.
#[derive(Clone, PartialEq, Message)]
pub(super) struct XStatMetadata {
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

/// An instruction of a compiled program.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HloInstruction {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "7")]
    pub(super) metadata: Option<HloOpMetadata>,
}

/// Where an instruction comes from.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HloOpMetadata {
    /// The framework's own path for it: `jit(step)/jvp(Model)/dense/dot_general`.
    #[prost(string, tag = "2")]
    pub(super) op_name: String,
    #[prost(string, tag = "3")]
    pub(super) source_file: String,
    #[prost(int32, tag = "4")]
    pub(super) source_line: i32,
    /// A frame of the stack, counted from 1.
    #[prost(int32, tag = "15")]
    pub(super) stack_frame: i32,
}

/// The stacks of a program. What they refer to is counted from 1.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HloStackFrames {
    #[prost(string, repeated, tag = "1")]
    pub(super) files: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) functions: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) locations: Vec<HloFileLocation>,
    #[prost(message, repeated, tag = "4")]
    pub(super) frames: Vec<HloStackFrame>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HloFileLocation {
    #[prost(int32, tag = "1")]
    pub(super) file: i32,
    #[prost(int32, tag = "2")]
    pub(super) function: i32,
    #[prost(int32, tag = "3")]
    pub(super) line: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HloStackFrame {
    #[prost(int32, tag = "1")]
    pub(super) location: i32,
}
