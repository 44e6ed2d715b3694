//! Whose clock the times of a rank's memory are: written by whoever records it, read by whoever analyzes it.

use crate::rank_info::RankInfo;

const KEY: &str = "memory_times";
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

impl MemoryTimes {
    /// What to note of a rank: a key and a text.
    pub fn note(&self) -> (&'static str, String) {
        let text = match self {
            MemoryTimes::Device => DEVICE.to_owned(),
            MemoryTimes::Host { why: None } => HOST.to_owned(),
            MemoryTimes::Host { why: Some(why) } => format!("{HOST}: {why}"),
        };
        (KEY, text)
    }

    /// What was noted of a rank, if anything was.
    pub fn of(info: &RankInfo) -> Option<MemoryTimes> {
        let text = info.collector.get(KEY)?.as_str()?;
        if text == DEVICE {
            return Some(MemoryTimes::Device);
        }
        let why = text.strip_prefix(HOST)?;
        let why = if why.is_empty() { None } else { Some(why.strip_prefix(": ")?.to_owned()) };
        Some(MemoryTimes::Host { why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;

    fn read(text: &str) -> Option<MemoryTimes> {
        let mut info = RankInfo::of_this_process(Rank(0));
        info.collector.insert("memory_times".into(), text.into());
        MemoryTimes::of(&info)
    }

    #[test]
    fn what_is_noted_is_read() {
        let host = |why: Option<&str>| MemoryTimes::Host { why: why.map(str::to_owned) };
        for times in [MemoryTimes::Device, host(None), host(Some("CUPTI is not attached"))] {
            let (key, text) = times.note();
            assert_eq!(key, "memory_times");
            assert_eq!(read(&text), Some(times));
        }
    }

    #[test]
    fn files_of_earlier_versions_are_read() {
        assert_eq!(read("the device's, in order of a stream"), Some(MemoryTimes::Device));
        assert_eq!(read("the host's"), Some(MemoryTimes::Host { why: None }));
        let why = Some("the stream is of another context".to_owned());
        assert_eq!(read("the host's: the stream is of another context"), Some(MemoryTimes::Host { why }));
        assert_eq!(read("the hostel's"), None);
        assert_eq!(MemoryTimes::of(&RankInfo::of_this_process(Rank(0))), None);
    }
}
