//! How PyTorch's memory was recorded.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::field::{NoteField, NoteText};

const VERSION: &str = "torch_version";
const COST: &str = "torch_memory_cost_ns";
const BESIDE: &str = "torch_memory_beside_ns";
const TIME: &str = "torch_memory_time_ns";
const READINGS: &str = "torch_memory_readings";
const GAPS: &str = "torch_memory_gaps";
const OTHER_DEVICES: &str = "torch_memory_other_devices";

const RECORDED: &str = "recorded";
const IN_PART: &str = "recorded in part: ";
const NOT_RECORDED: &str = "not recorded: ";

/// How much of PyTorch's memory was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TorchMemory {
    /// All of it.
    Recorded,
    /// Some of it.
    InPart {
        /// Why no more.
        why: String,
    },
    /// Nothing of it.
    NotRecorded {
        /// Why.
        why: String,
    },
}

impl fmt::Display for TorchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TorchMemory::Recorded => f.write_str(RECORDED),
            TorchMemory::InPart { why } => write!(f, "{IN_PART}{why}"),
            TorchMemory::NotRecorded { why } => write!(f, "{NOT_RECORDED}{why}"),
        }
    }
}

impl Serialize for TorchMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl NoteText for TorchMemory {
    fn read(text: &str) -> Option<TorchMemory> {
        match text.strip_prefix(IN_PART) {
            _ if text == RECORDED => Some(TorchMemory::Recorded),
            Some(why) => Some(TorchMemory::InPart { why: why.to_owned() }),
            None => Some(TorchMemory::NotRecorded { why: text.strip_prefix(NOT_RECORDED)?.to_owned() }),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// How PyTorch's memory was recorded: several numbers, each under a key of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchNotes {
    /// How much of it was, and why no more.
    pub state: TorchMemory,
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
        TorchNotes { version: Some(version.to_owned()), ..TorchNotes::of_state(TorchMemory::Recorded) }
    }

    /// Of which nothing else is said, or nothing new.
    pub fn of_state(state: TorchMemory) -> TorchNotes {
        TorchNotes {
            state,
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
        self.state == TorchMemory::Recorded
    }

    /// The share of its time that the program's own threads spent on this.
    pub fn cost(&self) -> Option<f64> {
        Some(self.cost_ns? as f64 / self.time_ns.filter(|time| *time > 0)? as f64)
    }

    /// The share of a processor that was spent beside them.
    pub fn beside(&self) -> Option<f64> {
        Some(self.beside_ns? as f64 / self.time_ns.filter(|time| *time > 0)? as f64)
    }
}

impl NoteField for TorchNotes {
    fn take(map: &mut Map<String, Value>, key: &str) -> Option<TorchNotes> {
        Some(TorchNotes {
            state: NoteField::take(map, key)?,
            version: NoteField::take(map, VERSION),
            cost_ns: NoteField::take(map, COST),
            beside_ns: NoteField::take(map, BESIDE),
            time_ns: NoteField::take(map, TIME),
            readings: NoteField::take(map, READINGS),
            gaps: NoteField::take(map, GAPS),
            other_devices: NoteField::take(map, OTHER_DEVICES),
        })
    }

    /// What is not said stays as it was.
    fn put(&self, map: &mut Map<String, Value>, key: &str) {
        self.state.put(map, key);
        self.version.iter().for_each(|version| version.put(map, VERSION));
        for (key, number) in [
            (COST, self.cost_ns),
            (BESIDE, self.beside_ns),
            (TIME, self.time_ns),
            (READINGS, self.readings),
            (GAPS, self.gaps),
            (OTHER_DEVICES, self.other_devices),
        ] {
            number.iter().for_each(|number| number.put(map, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_cost_is_a_share_of_the_time_it_took() {
        let notes =
            TorchNotes { cost_ns: Some(2), beside_ns: Some(30), time_ns: Some(1000), ..TorchNotes::recorded("2.11.0") };
        assert_eq!((notes.is_recorded(), notes.cost(), notes.beside()), (true, Some(0.002), Some(0.03)));
        let refused = TorchNotes::of_state(TorchMemory::NotRecorded { why: "no".into() });
        assert_eq!((refused.is_recorded(), refused.cost()), (false, None));
    }

    #[test]
    fn in_reports_the_state_is_a_text() {
        let state = |state: TorchMemory| serde_json::to_value(TorchNotes::of_state(state)).unwrap()["state"].clone();
        assert_eq!(state(TorchMemory::Recorded), "recorded");
        assert_eq!(state(TorchMemory::InPart { why: "no room".into() }), "recorded in part: no room");
    }
}
