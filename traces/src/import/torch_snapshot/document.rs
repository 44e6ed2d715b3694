//! A snapshot as PyTorch wrote it: for each device what happened, and what there was in the end.

use std::{
    collections::{BTreeMap, HashSet},
    io::Read,
};

use super::{
    super::pickle::{self, Ending, List, Objects, Value},
    calls::Calls,
    records::{Block, Event, Mark, Record, Records, Segment},
};
use crate::error::PickleError;

/// More devices than these are none.
const MOST_DEVICES: usize = 4096;

/// Of a longer name the beginning is kept.
const LONGEST_NAME: usize = 200;

/// A snapshot.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// By number; only those of which there is something.
    pub(super) devices: BTreeMap<u32, DeviceHistory>,
    /// Beginnings and ends of what the program named, in order.
    pub(super) annotations: Vec<Annotation>,
    /// Who asked for memory.
    pub(super) calls: Calls,
    /// Of a file that was cut off, how many bytes are missing at least.
    pub(super) missing_bytes: Option<u64>,
}

/// One device.
#[derive(Debug, Default)]
pub(super) struct DeviceHistory {
    /// What happened, in order.
    pub(super) events: Vec<Event>,
    /// Things in the list of events that are none.
    pub(super) unreadable_events: u64,
    /// Whether segments grow in parts.
    pub(super) has_expandable_segments: bool,
    /// What there was in the end; none where the file was cut off before the end of the events.
    pub(super) end: Option<EndState>,
}

/// What the allocator held when the snapshot was taken.
#[derive(Debug, Default)]
pub(super) struct EndState {
    /// Address and length of each segment.
    pub(super) segments: Vec<(u64, u64)>,
    /// Each block that was handed out, with its address.
    pub(super) blocks: Vec<(u64, Block)>,
}

/// The beginning or the end of something that the program named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Annotation {
    pub(super) begins: bool,
    pub(super) name: String,
    pub(super) device: Option<u32>,
    pub(super) time_us: i64,
}

/// Why there is no document.
#[derive(Debug)]
pub(super) enum NoDocument {
    Pickle(PickleError),
    SomethingElse(String),
    CutShort,
}

impl Document {
    /// Reads a snapshot.
    pub(super) fn read(reader: impl Read) -> Result<Document, NoDocument> {
        let mut records = Records::default();
        let pickle = pickle::read(reader, &mut records).map_err(NoDocument::Pickle)?;
        let objects = &pickle.objects;
        let cut = pickle.ending != Ending::Whole;
        let something_else = || match cut {
            true => NoDocument::CutShort,
            false => NoDocument::SomethingElse(describe(pickle.value, objects, &records)),
        };
        let root = objects.dict(pickle.value).ok_or_else(something_else)?;
        let [segments, histories, annotations] = records.parts(root);
        let (Some(segments), Some(histories)) = (segments, histories) else { return Err(something_else()) };
        let (Some((_, List::Items(segments))), Some((_, List::Items(histories)))) =
            (objects.list(segments), objects.list(histories))
        else {
            return Err(something_else());
        };
        if histories.len() > MOST_DEVICES {
            return Err(NoDocument::SomethingElse(format!("a pickle with {} devices", histories.len())));
        }
        // What comes after the histories is there only if they are whole.
        let whole = !cut || annotations.is_some() || !is_last(root, histories, objects);
        let mut document = Document::default();
        if let Ending::Cut { missing_bytes } = pickle.ending {
            document.missing_bytes = Some(missing_bytes);
        }
        document.take_histories(histories, objects, &records, whole);
        document.take_segments(segments, objects, &records);
        if cut && document.devices.values().all(|device| device.events.is_empty()) {
            return Err(NoDocument::CutShort);
        }
        if let Some((_, List::Items(items))) = annotations.and_then(|value| objects.list(value)) {
            document.annotations = items.iter().filter_map(|item| annotation(*item, objects, &records)).collect();
        }
        document.calls = records.calls;
        Ok(document)
    }

    fn take_histories(&mut self, histories: &[Value], objects: &Objects<Record>, records: &Records, whole: bool) {
        let mut taken = HashSet::new();
        for (device, history) in histories.iter().enumerate() {
            // A list that stands for several devices would be read again and again.
            let Some((_, list)) = objects.list(*history).filter(|(id, _)| taken.insert(*id)) else { continue };
            let items = if let List::Items(items) = list { items } else { &[] };
            let event = |item: &Value| match objects.record(*item) {
                Some(Record::Event(number)) => Some(records.events[number as usize]),
                _ => None,
            };
            let events: Vec<Event> = items.iter().filter_map(event).collect();
            let unreadable_events = (items.len() - events.len()) as u64;
            let end = (whole || device + 1 < histories.len()).then(EndState::default);
            if !items.is_empty() || end.is_some() {
                let has_expandable_segments = records.maps_segments;
                let history = DeviceHistory { events, unreadable_events, has_expandable_segments, end };
                self.devices.insert(device as u32, history);
            }
        }
    }

    fn take_segments(&mut self, segments: &[Value], objects: &Objects<Record>, records: &Records) {
        let mut taken = HashSet::new();
        for item in segments {
            let Some(Record::Segment(number)) = objects.record(*item) else { continue };
            let segment: Segment = records.segments[number as usize];
            let device = self.devices.get_mut(&segment.device);
            let Some(end) = device.and_then(|device| device.end.as_mut()) else { continue };
            end.segments.push((segment.address, segment.bytes));
            let Some((_, List::Items(blocks))) = objects.list(segment.blocks).filter(|(id, _)| taken.insert(*id))
            else {
                continue;
            };
            let mut next = segment.address;
            for block in blocks {
                let Some(Record::Block(number)) = objects.record(*block) else { continue };
                let block = records.blocks[number as usize];
                let address = block.address.unwrap_or(next);
                next = address.saturating_add(block.bytes);
                if block.active {
                    end.blocks.push((address, block));
                }
            }
        }
        let has_something = |device: &DeviceHistory| {
            !device.events.is_empty()
                || device.unreadable_events > 0
                || device.end.as_ref().is_some_and(|end| !end.segments.is_empty())
        };
        self.devices.retain(|_, device| has_something(device));
    }
}

fn annotation(item: Value, objects: &Objects<Record>, records: &Records) -> Option<Annotation> {
    let Some(Record::Mark(number)) = objects.record(item) else { return None };
    let Mark { begins, name, device, time_us } = records.marks[number as usize];
    let name = records.text(name).chars().take(LONGEST_NAME).collect();
    Some(Annotation { begins, name, device, time_us })
}

/// Whether a list is the last that a dict has.
fn is_last(root: &[Value], list: &[Value], objects: &Objects<Record>) -> bool {
    let last = root.last().and_then(|value| objects.list(*value));
    matches!(last, Some((_, List::Items(items))) if std::ptr::eq(items, list))
}

/// What a pickle is, in words.
fn describe(value: Value, objects: &Objects<Record>, records: &Records) -> String {
    const MOST_KEYS: usize = 5;
    let what = match value {
        Value::None => "None".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Integer(_) | Value::Float(_) => "a number".to_owned(),
        Value::Text(_) => "a text".to_owned(),
        Value::Tuple(_) => "a tuple".to_owned(),
        Value::Other(what) => what.to_owned(),
        Value::List(_) => match objects.list(value) {
            Some((_, List::Items(items))) => format!("a list of {} items", items.len()),
            _ => "a list of stack frames".to_owned(),
        },
        Value::Dict(_) => match (objects.dict(value), objects.record(value)) {
            (Some([]), _) => "an empty dict".to_owned(),
            (Some(items), _) => {
                let text = |pair: &[Value]| match pair[0] {
                    Value::Text(id) => Some(records.text(id).chars().take(40).collect::<String>()),
                    _ => None,
                };
                let keys: Vec<String> = items.chunks_exact(2).take(MOST_KEYS).filter_map(text).collect();
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                let more = if items.len() / 2 > MOST_KEYS { " and more" } else { "" };
                format!("a dict with the keys {}{more}", keys.join(", "))
            }
            _ => "a dict such as snapshots are made of".to_owned(),
        },
    };
    format!("a pickle of {what}")
}
