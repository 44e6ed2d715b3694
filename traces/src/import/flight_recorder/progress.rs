//! How far a rank had come in its groups.

use std::collections::BTreeMap;

use super::dump::{Dump, Entry, GroupConfig, GroupStatus, PythonCall};
use crate::{
    call_text::call_text,
    ids::{Group, Nanos},
    notes::{AskedOperation, GroupProgress, InFlight, OperationState},
};

/// How many operations that are not over are kept: those that were asked for later wait for them.
const MOST_WAITING: usize = 256;
/// How many collectives that are over are kept, of the last.
const MOST_COMPLETED: usize = 4096;
/// How much of a stack, and of a name, is kept.
const MOST_CALLS: usize = 64;
const LONGEST_NAME: usize = 200;

/// How far the rank had come.
pub(super) fn progress(dump: &Dump) -> InFlight {
    let numbers = numbers_of_groups(dump);
    // Of a group that the dump does not describe, nobody knows the ranks.
    let said = dump
        .entries
        .iter()
        .map(|entry| &entry.process_group)
        .filter(|(name, _)| !dump.header.pg_config.contains_key(name));
    let unknown: BTreeMap<&String, GroupConfig> =
        said.map(|(name, desc)| (name, GroupConfig { desc: desc.clone(), ..GroupConfig::default() })).collect();
    let groups = dump.header.pg_config.iter().chain(unknown.iter().map(|(name, config)| (*name, config))).map(
        |(name, config)| {
            let status = numbers.get(name.as_str()).and_then(|number| dump.header.pg_status.get(number));
            let of_group = dump.entries.iter().filter(|entry| !entry.is_p2p && entry.process_group.0 == *name);
            let asked = of_group.map(|entry| entry.collective_seq_id).max();
            let last_asked = asked.max(status.and_then(GroupStatus::last_asked));
            GroupProgress {
                group: number(name, config),
                name: short(if config.desc.is_empty() || config.desc == "undefined" { name } else { &config.desc }),
                ranks: config.ranks.0.clone(),
                last_asked,
            }
        },
    );
    let waiting: Vec<&Entry> = dump.entries.iter().filter(|entry| !entry.is_completed()).collect();
    let last = dump.entries.iter().rfind(|entry| entry.is_completed());
    let over: Vec<&Entry> = dump.entries.iter().filter(|entry| entry.is_completed() && !entry.is_p2p).collect();
    let without_stack = |entry: &&Entry| AskedOperation { stack: Vec::new(), ..operation(entry, dump) };
    InFlight {
        groups: groups.collect(),
        waiting: waiting.iter().take(MOST_WAITING).map(|entry| operation(entry, dump)).collect(),
        more: waiting.len().saturating_sub(MOST_WAITING) as u64,
        last_completed: last.map(|last| operation(last, dump)),
        completed: over[over.len().saturating_sub(MOST_COMPLETED)..].iter().map(without_stack).collect(),
        are_starts_known: dump.entries.iter().any(Entry::has_start),
        are_ends_unknown: false,
    }
}

/// The number that all ranks of a group have for it: names are used again for groups of other ranks.
pub(super) fn number(name: &str, config: &GroupConfig) -> Group {
    let ranks: Vec<String> = config.ranks.0.iter().map(ToString::to_string).collect();
    Group::hashed(crc32fast::hash(format!("{name} of {}", ranks.join(",")).as_bytes()))
}

/// Under which number the status of each group stands. Operations say it. Where a group has none, groups are numbered in the
/// order in which they were made, as their names are, if those are numbers.
fn numbers_of_groups(dump: &Dump) -> BTreeMap<&str, String> {
    let mut numbers: BTreeMap<&str, String> = BTreeMap::new();
    let names: Option<Vec<u64>> = dump.header.pg_config.keys().map(|name| name.parse().ok()).collect();
    let made: Option<Vec<u64>> = dump.header.pg_status.keys().map(|number| number.parse().ok()).collect();
    if let (Some(mut names), Some(mut made)) = (names, made)
        && names.len() == made.len()
    {
        names.sort_unstable();
        made.sort_unstable();
        let of_name = |name: u64| dump.header.pg_config.keys().find(|key| key.parse() == Ok(name));
        numbers.extend(
            names.into_iter().zip(made).filter_map(|(name, made)| Some((of_name(name)?.as_str(), made.to_string()))),
        );
    }
    // A rank may be in one group alone, whatever that is called.
    if let (1, 1) = (dump.header.pg_config.len(), dump.header.pg_status.len()) {
        numbers.extend(dump.header.pg_config.keys().map(String::as_str).zip(dump.header.pg_status.keys().cloned()));
    }
    for entry in &dump.entries {
        if let Some(number) = entry.pg_id.0 {
            numbers.insert(&entry.process_group.0, number.to_string());
        }
    }
    numbers
}

fn operation(entry: &Entry, dump: &Dump) -> AskedOperation {
    let unknown = GroupConfig::default();
    let config = dump.header.pg_config.get(&entry.process_group.0).unwrap_or(&unknown);
    let call = |frame: &PythonCall| short(&call_text(&frame.name, &frame.filename, frame.line.0));
    AskedOperation {
        group: number(&entry.process_group.0, config),
        name: short(entry.operation()),
        sequence: if entry.is_p2p { entry.p2p_seq_id } else { entry.collective_seq_id },
        peer: entry.peer().and_then(|place| config.ranks.0.get(place).copied()),
        peer_place: None,
        input_sizes: entry.input_sizes.clone(),
        output_sizes: entry.output_sizes.clone(),
        types: entry.input_dtypes.clone(),
        state: match entry.state.as_str() {
            "completed" => OperationState::Completed,
            "started" => OperationState::Started,
            _ => OperationState::Scheduled,
        },
        asked_ns: Nanos(entry.time_created_ns),
        stack: entry.frames.iter().take(MOST_CALLS).map(call).collect(),
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_NAME).collect()
}
