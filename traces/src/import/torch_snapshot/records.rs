//! What a snapshot consists of, told from its dicts as they are read.

use super::{
    super::pickle::{Fold, Objects, TextId, Value},
    calls::{Calls, CallsId},
    frame::{Hints, Sign, Stack},
};

/// What happened in the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Action {
    /// A block was handed out.
    Alloc,
    /// A block was given back; a stream may still use it.
    FreeRequested,
    /// A block can be handed out again.
    FreeCompleted,
    /// Memory was taken from the device: a segment of its own, or one more part of one that grows.
    Reserve,
    /// Memory went back to the device.
    Release,
    /// The device had no memory left.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// Something that newer versions of PyTorch record.
    Unknown,
}

/// One event of a device's history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) action: Action,
    pub(super) address: Option<u64>,
    pub(super) bytes: u64,
    pub(super) time_us: Option<i64>,
    /// Who did it, if that was recorded.
    pub(super) stack: Option<Stack>,
    /// The stream that it is for.
    pub(super) stream: u64,
    /// What the device had left, where memory ran out.
    pub(super) device_free: Option<u64>,
}

/// A block as the snapshot found it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// Where it is; older versions leave it to the blocks before it.
    pub(super) address: Option<u64>,
    /// How long it is, rounding included.
    pub(super) bytes: u64,
    /// What was asked for, if that was recorded.
    pub(super) requested_bytes: Option<u64>,
    /// Whether it was handed out.
    pub(super) active: bool,
    /// Who asked for it, if that was recorded.
    pub(super) stack: Option<Stack>,
}

/// A segment as the snapshot found it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) device: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// A list.
    pub(super) blocks: Value,
}

/// The beginning or the end of something that the program named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) begins: bool,
    pub(super) name: TextId,
    pub(super) device: Option<u32>,
    pub(super) time_us: i64,
}

/// What is left of a dict or a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record {
    Frame(Stack),
    Frames(Stack),
    Event(u32),
    Block(u32),
    Segment(u32),
    Mark(u32),
}

/// A word that snapshots use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Segments,
    DeviceTraces,
    ExternalAnnotations,
    Action,
    Address,
    Size,
    TimeUs,
    Frames,
    Name,
    Filename,
    State,
    RequestedSize,
    Device,
    TotalSize,
    Blocks,
    Stage,
    Line,
    Stream,
    DeviceFree,
    ActionOf(Action),
    Start,
    End,
    Active,
    Other,
}

impl Word {
    fn of(text: &str) -> Word {
        match text {
            "segments" => Word::Segments,
            "device_traces" => Word::DeviceTraces,
            "external_annotations" => Word::ExternalAnnotations,
            "action" => Word::Action,
            "addr" | "address" => Word::Address,
            "size" => Word::Size,
            "time_us" => Word::TimeUs,
            "frames" => Word::Frames,
            "name" => Word::Name,
            "filename" => Word::Filename,
            "state" => Word::State,
            "requested_size" => Word::RequestedSize,
            "device" => Word::Device,
            "total_size" => Word::TotalSize,
            "blocks" => Word::Blocks,
            "stage" => Word::Stage,
            "line" => Word::Line,
            "stream" => Word::Stream,
            "device_free" => Word::DeviceFree,
            "alloc" => Word::ActionOf(Action::Alloc),
            "free_requested" => Word::ActionOf(Action::FreeRequested),
            "free_completed" => Word::ActionOf(Action::FreeCompleted),
            "segment_alloc" | "segment_map" => Word::ActionOf(Action::Reserve),
            "segment_free" | "segment_unmap" => Word::ActionOf(Action::Release),
            "oom" => Word::ActionOf(Action::OutOfMemory),
            "snapshot" => Word::ActionOf(Action::Snapshot),
            "START" => Word::Start,
            "END" => Word::End,
            "active_allocated" | "active_pending_free" | "active_awaiting_free" => Word::Active,
            _ => Word::Other,
        }
    }
}

/// Folds the dicts of a snapshot.
#[derive(Default)]
pub(super) struct Records {
    pub(super) events: Vec<Event>,
    pub(super) blocks: Vec<Block>,
    pub(super) segments: Vec<Segment>,
    pub(super) marks: Vec<Mark>,
    pub(super) calls: Calls,
    /// Whether memory is mapped into segments part by part.
    pub(super) maps_segments: bool,
    words: Vec<Word>,
    hints: Vec<Hints>,
    action_texts: [Option<TextId>; 8],
    /// Every text in one, and where each ends.
    texts: String,
    ends: Vec<usize>,
}

/// What a dict has under the keys that snapshots use, as far as they are there.
#[derive(Default)]
struct Fields {
    action: Option<Value>,
    address: Option<u64>,
    size: Option<u64>,
    time_us: Option<i64>,
    frames: Option<Value>,
    name: Option<TextId>,
    filename: Option<TextId>,
    state: Option<TextId>,
    requested_size: Option<u64>,
    device: Option<u32>,
    total_size: Option<u64>,
    blocks: Option<Value>,
    stage: Option<TextId>,
    line: Option<u64>,
    stream: Option<u64>,
    device_free: Option<u64>,
}

impl Records {
    /// The text with a number.
    pub(super) fn text(&self, TextId(number): TextId) -> &str {
        let number = number as usize;
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[begin..self.ends[number]]
    }

    fn word(&self, TextId(number): TextId) -> Word {
        self.words[number as usize]
    }

    fn hints(&self, TextId(number): TextId) -> Hints {
        self.hints[number as usize]
    }

    /// The three parts of a snapshot, by its keys: segments, histories, annotations.
    pub(super) fn parts(&self, items: &[Value]) -> [Option<Value>; 3] {
        let part = |wanted: Word| {
            let has = |pair: &&[Value]| matches!(pair[0], Value::Text(key) if self.word(key) == wanted);
            items.chunks_exact(2).find(has).map(|pair| pair[1])
        };
        [part(Word::Segments), part(Word::DeviceTraces), part(Word::ExternalAnnotations)]
    }

    fn fields(&self, items: &[Value]) -> Fields {
        let mut fields = Fields::default();
        let text = |value| if let Value::Text(id) = value { Some(id) } else { None };
        let integer = |value| if let Value::Integer(integer) = value { Some(integer) } else { None };
        let unsigned = |value| integer(value).and_then(|integer| u64::try_from(integer).ok());
        for pair in items.chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match self.word(key) {
                Word::Action => fields.action = Some(value),
                Word::Address => fields.address = unsigned(value),
                Word::Size => fields.size = unsigned(value),
                Word::TimeUs => fields.time_us = integer(value),
                Word::Frames => fields.frames = Some(value),
                Word::Name => fields.name = text(value),
                Word::Filename => fields.filename = text(value),
                Word::State => fields.state = text(value),
                Word::RequestedSize => fields.requested_size = unsigned(value),
                Word::Device => fields.device = unsigned(value).and_then(|device| u32::try_from(device).ok()),
                Word::TotalSize => fields.total_size = unsigned(value),
                Word::Blocks => fields.blocks = Some(value),
                Word::Stage => fields.stage = text(value),
                Word::Line => fields.line = unsigned(value),
                Word::Stream => fields.stream = unsigned(value),
                Word::DeviceFree => fields.device_free = unsigned(value),
                _ => {}
            }
        }
        fields
    }

    fn action(&self, value: Value) -> Action {
        match value {
            Value::Text(id) => match self.word(id) {
                Word::ActionOf(action) => action,
                _ => Action::Unknown,
            },
            _ => Action::Unknown,
        }
    }
}

impl Fold for Records {
    type Record = Record;

    fn text(&mut self, text: &str) -> TextId {
        let word = Word::of(text);
        self.maps_segments |= text == "segment_map";
        let next = TextId(self.words.len() as u32);
        if let Word::ActionOf(action) = word {
            // Every event has a text of its own for its action.
            let known = self.action_texts[action as usize].get_or_insert(next);
            if *known != next {
                return *known;
            }
        }
        self.words.push(word);
        self.hints.push(Hints::of(text));
        self.texts.push_str(text);
        self.ends.push(self.texts.len());
        next
    }

    fn dict(&mut self, items: &[Value], objects: &Objects<Record>) -> Option<Record> {
        let fields = self.fields(items);
        let stack = fields.frames.and_then(|frames| match objects.record(frames) {
            Some(Record::Frames(stack)) => Some(stack),
            _ => None,
        });
        if let (Some(name), Some(filename)) = (fields.name, fields.filename) {
            let mut stack = Stack::of_frame(self.hints(name), self.hints(filename));
            if stack.has(Sign::Python) {
                let (function, file) = (Records::text(self, name).to_owned(), Records::text(self, filename).to_owned());
                stack.calls = self.calls.one(&function, &file, fields.line.filter(|line| *line > 0));
            }
            return Some(Record::Frame(stack));
        }
        if let (Some(action), Some(bytes)) = (fields.action, fields.size) {
            let action = self.action(action);
            let Fields { address, time_us, device_free, .. } = fields;
            // Whoever counts the items that are no events counts this one, too.
            if time_us.is_some_and(|time_us| time_us.checked_mul(1000).is_none()) {
                return None;
            }
            let stream = fields.stream.unwrap_or(0);
            let event = Event { action, address, bytes, time_us, stack, stream, device_free };
            return Some(Record::Event(add(&mut self.events, event)));
        }
        if let (Some(bytes), Some(address), Some(blocks)) = (fields.total_size, fields.address, fields.blocks) {
            let segment = Segment { device: fields.device.unwrap_or(0), address, bytes, blocks };
            return Some(Record::Segment(add(&mut self.segments, segment)));
        }
        if let (Some(bytes), Some(state)) = (fields.size, fields.state) {
            let Fields { address, requested_size: requested_bytes, .. } = fields;
            let active = self.word(state) == Word::Active;
            let block = Block { address, bytes, requested_bytes, active, stack };
            return Some(Record::Block(add(&mut self.blocks, block)));
        }
        if let (Some(stage), Some(name), Some(time_us)) = (fields.stage, fields.name, fields.time_us) {
            let begins = match self.word(stage) {
                Word::Start => true,
                Word::End => false,
                _ => return None,
            };
            return Some(Record::Mark(add(&mut self.marks, Mark { begins, name, device: fields.device, time_us })));
        }
        None
    }

    fn list(&mut self, so_far: Option<Record>, items: &[Value], objects: &Objects<Record>) -> Option<Record> {
        let mut stack = match so_far {
            None => None,
            Some(Record::Frames(stack)) => Some(stack),
            Some(_) => return None,
        };
        for item in items {
            let Some(Record::Frame(frame)) = objects.record(*item) else { return None };
            let calls = self.calls.within(stack.map_or_else(CallsId::default, |inner| inner.calls), frame.calls);
            stack = Some(stack.map_or(frame, |inner| inner.within(frame)).calling(calls));
        }
        stack.map(Record::Frames)
    }
}

fn add<T>(records: &mut Vec<T>, record: T) -> u32 {
    // The reader numbers values in 32 bits, and stops before they run out.
    records.push(record);
    records.len() as u32 - 1
}
