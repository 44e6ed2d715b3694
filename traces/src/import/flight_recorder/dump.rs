//! A dump as PyTorch wrote it.

use std::{collections::BTreeMap, io::Read};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    super::pickle::PlainPickle,
    words::{Count, RankNumbers},
};
use crate::error::PickleError;

/// What stands before the name of an operation is the library that does it.
const LIBRARY_END: char = ':';

/// A dump.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub(super) header: DumpHeader,
    /// The operations, in the order in which they were asked for.
    pub(super) entries: Vec<Entry>,
    /// What should be one and cannot be read.
    pub(super) unreadable_entries: u64,
    /// Of a dump that was cut off, how many bytes are missing at least.
    pub(super) missing_bytes: Option<u64>,
}

/// What a dump says of the rank.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DumpHeader {
    pub(super) version: String,
    /// The groups of the rank, by their names.
    pub(super) pg_config: BTreeMap<String, GroupConfig>,
    /// How far each group had come, by a number that the rank has for it.
    pub(super) pg_status: BTreeMap<String, GroupStatus>,
}

/// A group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupConfig {
    pub(super) desc: String,
    pub(super) ranks: RankNumbers,
}

/// How far a group had come.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupStatus {
    pub(super) last_enqueued_collective: Count,
    pub(super) last_completed_collective: Count,
}

impl GroupStatus {
    /// The number of the last collective that was asked for.
    pub(super) fn last_asked(&self) -> Option<u64> {
        self.last_enqueued_collective.0.max(self.last_completed_collective.0)
    }
}

/// An operation.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    /// The name of its group, and what the program calls it.
    pub(super) process_group: (String, String),
    pub(super) profiling_name: String,
    #[serde(alias = "seq_id")]
    pub(super) collective_seq_id: u64,
    #[serde(default)]
    pub(super) p2p_seq_id: u64,
    #[serde(default)]
    pub(super) pg_id: Count,
    #[serde(default)]
    pub(super) is_p2p: bool,
    pub(super) time_created_ns: i64,
    #[serde(default)]
    pub(super) time_discovered_started_ns: Count,
    #[serde(default)]
    pub(super) time_discovered_completed_ns: Count,
    pub(super) state: String,
    #[serde(default)]
    pub(super) input_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    pub(super) output_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    pub(super) input_dtypes: Vec<String>,
    #[serde(default)]
    pub(super) frames: Vec<PythonCall>,
}

/// A call.
#[derive(Debug, Deserialize)]
pub(super) struct PythonCall {
    pub(super) name: String,
    pub(super) filename: String,
    #[serde(default)]
    pub(super) line: Count,
}

/// Why there is no dump.
#[derive(Debug)]
pub(super) enum NoDump {
    Pickle(PickleError),
    Json(serde_json::Error),
    /// It is something else, in words.
    SomethingElse(String),
}

impl Dump {
    pub(super) fn of_pickle(reader: impl Read) -> Result<Dump, NoDump> {
        let pickle = PlainPickle::read(reader).map_err(NoDump::Pickle)?;
        let root = pickle.root();
        let entries = root.get("entries").into_iter().flat_map(|entries| entries.items());
        let mut dump = Dump::of(root, entries)?;
        dump.missing_bytes = pickle.missing_bytes();
        Ok(dump)
    }

    pub(super) fn of_json(reader: impl Read) -> Result<Dump, NoDump> {
        let mut root: Value = serde_json::from_reader(reader).map_err(NoDump::Json)?;
        let entries = match root.get_mut("entries").map(Value::take) {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        };
        Dump::of(root, entries.into_iter())
    }

    /// One that cannot be read costs only itself.
    fn of<'de, D: Deserializer<'de>>(root: D, entries: impl Iterator<Item = D>) -> Result<Dump, NoDump> {
        let what =
            |error: D::Error| NoDump::SomethingElse(format!("a Flight Recorder dump that cannot be read: {error}"));
        let header = DumpHeader::deserialize(root).map_err(what)?;
        if !header.version.starts_with("2.") {
            let what = match header.version.as_str() {
                "" => "a Flight Recorder dump without a version".to_owned(),
                version => format!(
                    "a Flight Recorder dump of version {version}; 2.x is read, as PyTorch 2.4 and later write it"
                ),
            };
            return Err(NoDump::SomethingElse(what));
        }
        let mut dump = Dump { header, ..Dump::default() };
        for entry in entries {
            match Entry::deserialize(entry) {
                Ok(entry) => dump.entries.push(entry),
                Err(_) => dump.unreadable_entries += 1,
            }
        }
        Ok(dump)
    }
}

impl Entry {
    /// What it does, without the library that does it.
    pub(super) fn operation(&self) -> &str {
        let name = self.profiling_name.split_once(LIBRARY_END).map_or(self.profiling_name.as_str(), |(_, name)| name);
        name.split_once(' ').map_or(name, |(operation, _)| operation)
    }

    /// The place of the other side in the group, of a send (`send 0->1`) or a receive (`recv 1<-0`).
    pub(super) fn peer(&self) -> Option<usize> {
        let (_, sides) = self.profiling_name.rsplit_once(' ')?;
        let (_, other) = sides.split_once("->").or_else(|| sides.split_once("<-"))?;
        other.parse().ok()
    }

    /// Whether it is known when it began.
    pub(super) fn has_start(&self) -> bool {
        self.state == "started" || self.time_discovered_started_ns.0.is_some_and(|time| time > 0)
    }

    pub(super) fn is_completed(&self) -> bool {
        self.state == "completed"
    }
}
