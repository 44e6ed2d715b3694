//! Whose clock the times of a rank's memory are.

use super::field::NoteText;

const DEVICE: &str = "the device's, in order of a stream";
const HOST: &str = "the host's";

/// Whose clock the times of a rank's memory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryTimes {
    /// The device's: memory rises and falls with the kernels that use it.
    Device,
    /// The host's, which runs ahead of the device.
    Host {
        /// Why they are not the device's, if something went wrong.
        why: Option<String>,
    },
}

impl NoteText for MemoryTimes {
    fn read(text: &str) -> Option<MemoryTimes> {
        if text == DEVICE {
            return Some(MemoryTimes::Device);
        }
        let why = text.strip_prefix(HOST)?;
        let why = if why.is_empty() { None } else { Some(why.strip_prefix(": ")?.to_owned()) };
        Some(MemoryTimes::Host { why })
    }

    fn write(&self) -> String {
        match self {
            MemoryTimes::Device => DEVICE.to_owned(),
            MemoryTimes::Host { why: None } => HOST.to_owned(),
            MemoryTimes::Host { why: Some(why) } => format!("{HOST}: {why}"),
        }
    }
}
