//! What a rank notes of how PyTorch's memory was recorded: written by whoever records it, read by whoever shows it.

use serde::Serialize;

use crate::{memory_times::MemoryTimes, rank_info::RankInfo};

const STATE: &str = "torch_memory";
const VERSION: &str = "torch_version";
const COST: &str = "torch_memory_cost_ns";
const BESIDE: &str = "torch_memory_beside_ns";
const TIME: &str = "torch_memory_time_ns";
const READINGS: &str = "torch_memory_readings";
const GAPS: &str = "torch_memory_gaps";
const OTHER_DEVICES: &str = "torch_memory_other_devices";
const RECORDED: &str = "recorded";

/// How PyTorch's memory was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchNotes {
    /// `recorded`, or why it was not, or only in part.
    pub state: String,
    /// PyTorch's version, where it is recorded.
    pub version: Option<String>,
    /// What it took on the program's own threads.
    pub cost_ns: Option<u64>,
    /// What it took on a thread beside those.
    pub beside_ns: Option<u64>,
    /// Over how long.
    pub time_ns: Option<u64>,
    /// How often PyTorch's history was read.
    pub readings: Option<u64>,
    /// How often events were lost between two readings.
    pub gaps: Option<u64>,
    /// Other devices that the program has memory on.
    pub other_devices: Option<u64>,
}

impl TorchNotes {
    /// Of memory that is recorded.
    pub fn recorded(version: &str) -> TorchNotes {
        TorchNotes { version: Some(version.to_owned()), ..TorchNotes::refused(RECORDED) }
    }

    /// Of memory that is not recorded, or not any more, and why.
    pub fn refused(state: &str) -> TorchNotes {
        TorchNotes {
            state: state.to_owned(),
            version: None,
            cost_ns: None,
            beside_ns: None,
            time_ns: None,
            readings: None,
            gaps: None,
            other_devices: None,
        }
    }

    /// Whether all of it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.state == RECORDED
    }

    /// The share of its time that the program's own threads spent on this.
    pub fn cost(&self) -> Option<f64> {
        Some(self.cost_ns? as f64 / self.time_ns.filter(|time| *time > 0)? as f64)
    }

    /// The share of a processor that was spent beside them.
    pub fn beside(&self) -> Option<f64> {
        Some(self.beside_ns? as f64 / self.time_ns.filter(|time| *time > 0)? as f64)
    }

    /// What to note of a rank.
    pub fn notes(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            (COST, self.cost_ns),
            (BESIDE, self.beside_ns),
            (TIME, self.time_ns),
            (READINGS, self.readings),
            (GAPS, self.gaps),
            (OTHER_DEVICES, self.other_devices),
        ];
        let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, number?.to_string())));
        let mut notes: Vec<_> = [(STATE, self.state.clone())].into_iter().chain(numbers).collect();
        if let Some(version) = &self.version {
            notes.push((VERSION, version.clone()));
            notes.push(("memory_categories", "inferred".into()));
            notes.push(MemoryTimes::Host { why: None }.note());
        }
        notes
    }

    /// What was noted of a rank, if anything was.
    pub fn of(info: &RankInfo) -> Option<TorchNotes> {
        let text = |key: &str| info.collector.get(key).and_then(|note| note.as_str());
        let number = |key: &str| text(key).and_then(|note| note.parse().ok());
        Some(TorchNotes {
            state: text(STATE)?.to_owned(),
            version: text(VERSION).map(str::to_owned),
            cost_ns: number(COST),
            beside_ns: number(BESIDE),
            time_ns: number(TIME),
            readings: number(READINGS),
            gaps: number(GAPS),
            other_devices: number(OTHER_DEVICES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;

    #[test]
    fn what_is_noted_is_read() {
        let mut info = RankInfo::of_this_process(Rank(0));
        assert_eq!(TorchNotes::of(&info), None);
        let notes = TorchNotes {
            cost_ns: Some(2),
            beside_ns: Some(30),
            time_ns: Some(1000),
            readings: Some(4),
            gaps: Some(0),
            other_devices: None,
            ..TorchNotes::recorded("2.11.0")
        };
        info.collector.extend(notes.notes().into_iter().map(|(key, note)| (key.to_owned(), note.into())));
        assert_eq!(TorchNotes::of(&info), Some(notes.clone()));
        assert_eq!((notes.is_recorded(), notes.cost(), notes.beside()), (true, Some(0.002), Some(0.03)));
        assert_eq!((TorchNotes::refused("not recorded: no").cost(), notes.other_devices), (None, None));
    }
}
