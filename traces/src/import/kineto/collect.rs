//! Takes the events of a trace into as few bytes as the run needs.
//!
//! Calls of the host are kept until it is known which of them launched something; operators and functions, until it is known
//! which of them such a call was in. Annotations on the device's side are copies of those of the host.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::ControlFlow,
};

use serde_json::value::RawValue;

use super::{
    annotation::TrainingContext,
    collective::{message_bytes, operation},
    document::Visit,
    event::{Event, Meaning, number, text},
    header::Header,
    memory::MemoryChange,
    names::NameBook,
    operator::{FunctionCall, OperatorCall, OperatorNames},
    places::Annotated,
    plain::OperatorArguments,
};
use crate::{
    ids::{Correlation, Group, NameId, Nanos, Sequence, Stream},
    kernels::KernelKind,
    tables::Span,
    vocabulary::SpanKind,
};

/// How many rows of each kind are kept. Files of ten gigabytes have fewer.
const MOST_ROWS: usize = 1 << 23;

/// How many kinds of events that are not read are told apart.
const MOST_KINDS: usize = 16;

/// PyTorch's number for memory of the host.
const HOST: i32 = 0;

/// What the events of a trace come to. Times are the trace's own.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) header: Header,
    /// The groups of the job by the names they have on this rank.
    groups: HashMap<String, Group>,
    pub(super) names: NameBook,
    pub(super) activities: Vec<Activity>,
    pub(super) calls: Vec<Call>,
    pub(super) annotations: Vec<(Annotated, NameId)>,
    pub(super) operators: Vec<OperatorCall>,
    pub(super) functions: Vec<FunctionCall>,
    /// What operators and functions are called, and what they are given.
    pub(super) called: OperatorNames,
    /// What kernels of a name communicate, if they do.
    communicating: HashMap<NameId, Option<SpanKind>>,
    pub(super) memory: Vec<MemoryChange>,
    /// Sends and receives that the program asked for.
    pub(super) messages: Vec<AskedMessage>,
    /// This rank's place in each group that has messages, by the group's name.
    places: HashMap<String, Option<u16>>,
    /// The threads on which autograd works.
    pub(super) autograd: HashSet<u32>,
    /// How many events there are of kinds that are not read: those of devices of other makers.
    pub(super) not_read: BTreeMap<String, u64>,
    /// Events that do not say when they were, or say that they were at no time.
    pub(super) timeless: u64,
    /// Events for which there was no room.
    pub(super) dropped: u64,
}

/// Something a device did. Its place in the training is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    pub(super) span: Span,
    pub(super) device: Option<u32>,
    /// The number of the operator that launched it.
    pub(super) external: Option<u64>,
}

/// A call of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) correlation: u64,
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) thread: Option<u32>,
    pub(super) name: NameId,
}

/// A send or a receive that a thread asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedMessage {
    pub(super) thread: Option<u32>,
    pub(super) start: Nanos,
    pub(super) kind: SpanKind,
    pub(super) group: Option<Group>,
    pub(super) bytes: Option<u64>,
    /// From whom and to whom, by their places in the group.
    pub(super) ends: Option<(u16, u16)>,
}

impl Visit for Collected {
    fn field(&mut self, key: &str, value: &RawValue) {
        self.header.take(key, value);
    }

    fn begin(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let is_counted = |kind: &&str| self.not_read.len() < MOST_KINDS || self.not_read.contains_key(*kind);
        if let Some(kind) = event.not_read().filter(is_counted) {
            *self.not_read.entry(kind.to_owned()).or_default() += 1;
        }
        if let Some(meaning) = event.meaning() {
            self.take(meaning, event);
        }
        ControlFlow::Continue(())
    }
}

impl Collected {
    /// Nothing yet, of a rank that knows these groups.
    pub(super) fn new(groups: HashMap<String, Group>) -> Collected {
        Collected { groups, ..Collected::default() }
    }

    /// Puts all times off by what the header says. What would not be over before the last time there is, is left out and
    /// counted.
    pub(super) fn move_times(&mut self) {
        let by = self.header.base_ns;
        let moved = |start: &mut Nanos, duration: Nanos| {
            let there = start.0.checked_add(by).map(Nanos).filter(|there| there.has_end(duration));
            *start = there.unwrap_or_default();
            there.is_some()
        };
        let count = |all: &Collected| {
            let host = all.calls.len() + all.annotations.len() + all.operators.len() + all.functions.len();
            all.activities.len() + host + all.memory.len() + all.messages.len()
        };
        let before = count(self);
        self.activities.retain_mut(|Activity { span, .. }| moved(&mut span.start_ns, span.duration_ns));
        self.calls.retain_mut(|call| moved(&mut call.start, call.duration));
        self.annotations.retain_mut(|(annotated, _)| {
            let duration = annotated.end - annotated.start;
            let is_kept = moved(&mut annotated.start, duration);
            annotated.end = annotated.start + duration;
            is_kept
        });
        self.operators.retain_mut(|operator| moved(&mut operator.start, operator.duration));
        self.functions.retain_mut(|function| moved(&mut function.start, function.duration));
        self.memory.retain_mut(|change| moved(&mut change.time, Nanos(0)));
        self.messages.retain_mut(|message| moved(&mut message.start, Nanos(0)));
        self.timeless += (before - count(self)) as u64;
    }

    fn take(&mut self, meaning: Meaning, event: &Event<'_>) {
        if meaning == Meaning::ThreadName {
            let name = text(event.arguments().name).unwrap_or_default();
            self.autograd.extend(event.thread().filter(|_| name.contains("pt_autograd")));
            return;
        }
        let duration = if meaning == Meaning::Memory { Some(Nanos(0)) } else { event.duration() };
        let times = event.time().zip(duration);
        let Some((start, duration)) = times.filter(|(start, duration)| start.has_end(*duration)) else {
            self.timeless += 1;
            return;
        };
        match meaning {
            Meaning::Kernel => {
                let name = self.names.id(&event.name);
                let kind = self.kernel_kind(name, event);
                self.activity(kind, name, event, start, duration);
            }
            Meaning::Copy | Meaning::Set => {
                let kind = if meaning == Meaning::Copy { SpanKind::Copy } else { SpanKind::Set };
                let name = self.names.id(&event.name);
                self.activity(kind, name, event, start, duration);
            }
            Meaning::Launch => {
                if let Some(correlation) = number(event.arguments().correlation) {
                    let call =
                        Call { correlation, start, duration, thread: event.thread(), name: self.names.id(&event.name) };
                    keep(&mut self.calls, call, &mut self.dropped);
                }
            }
            Meaning::Annotation => self.annotation(TrainingContext::named(&event.name), event, start, duration),
            Meaning::Operator => match TrainingContext::of_framework(&event.name) {
                Some(place) => self.annotation(place, event, start, duration),
                None => self.operator(event, start, duration),
            },
            Meaning::Function => {
                let name = self.called.function(&event.name);
                let function = FunctionCall { start, duration, thread: event.thread(), name };
                keep(&mut self.functions, function, &mut self.dropped);
            }
            Meaning::Memory => self.memory(event, start),
            Meaning::Communication => self.message(event, start),
            Meaning::ThreadName => {}
        }
    }

    fn annotation(&mut self, place: TrainingContext, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let annotated = Annotated { thread: event.thread(), start, end: start + duration, place };
        let name = self.names.id(&event.name);
        keep(&mut self.annotations, (annotated, name), &mut self.dropped);
    }

    fn operator(&mut self, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let name = self.called.operator(&event.name);
        let arguments = OperatorArguments::of(event.of_operator.unwrap_or_default());
        let operator = OperatorCall {
            start,
            duration,
            thread: event.thread(),
            name,
            shapes: self.called.shapes(name, arguments.given),
            external: arguments.external,
            node: arguments.node,
            forward_thread: arguments.forward_thread,
        };
        keep(&mut self.operators, operator, &mut self.dropped);
    }

    fn activity(&mut self, kind: SpanKind, name: NameId, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let arguments = event.arguments();
        let mut span = Span {
            // Where the arguments do not say, the thread of an activity is its stream.
            stream: number(arguments.stream).or(event.thread()).map(Stream),
            correlation: number(arguments.correlation).map(Correlation),
            ..Span::new(kind, name, start, duration)
        };
        if kind.is_communication() {
            span.bytes = message_bytes(arguments);
            span.group = self.group(event);
            span.sequence = number(arguments.sequence).map(Sequence);
        } else if kind.is_copy() {
            span.bytes = number(arguments.bytes);
        }
        let device = number(arguments.device);
        let external = number(arguments.external);
        keep(&mut self.activities, Activity { span, device, external }, &mut self.dropped);
    }

    /// What a kernel is. Each name is looked up once.
    fn kernel_kind(&mut self, name: NameId, event: &Event<'_>) -> SpanKind {
        if event.arguments().collective.is_some() {
            return operation(&event.name, event.arguments());
        }
        let known = self.communicating.entry(name).or_insert_with(|| KernelKind::communication(&event.name));
        known.unwrap_or(SpanKind::Kernel)
    }

    /// The group of a collective. One that the trace did not list gets a number that is the same on all ranks.
    fn group(&self, event: &Event<'_>) -> Option<Group> {
        let name = text(event.arguments().group)?;
        Some(self.groups.get(name.as_ref()).copied().unwrap_or_else(|| {
            let mut key = crc32fast::Hasher::new();
            key.update(name.as_bytes());
            key.update(event.arguments().group_ranks.unwrap_or_default().as_bytes());
            Group::hashed(key.finalize())
        }))
    }

    /// Takes what a thread asks of a group, if it is a message.
    fn message(&mut self, event: &Event<'_>, start: Nanos) {
        let arguments = event.arguments();
        let kind = operation(&event.name, arguments);
        let peer = match kind {
            SpanKind::Send => arguments.destination,
            SpanKind::Receive => arguments.source,
            _ => return,
        };
        let ends = number(peer).zip(self.place(event)).map(|(peer, own)| match kind {
            SpanKind::Send => (own, peer),
            _ => (peer, own),
        });
        let (group, bytes) = (self.group(event), message_bytes(arguments));
        let message = AskedMessage { thread: event.thread(), start, kind, group, bytes, ends };
        keep(&mut self.messages, message, &mut self.dropped);
    }

    /// This rank's place in the group of a message.
    fn place(&mut self, event: &Event<'_>) -> Option<u16> {
        let name = text(event.arguments().group)?;
        if let Some(known) = self.places.get(name.as_ref()) {
            return *known;
        }
        let rank = self.header.distributed.as_ref().and_then(|distributed| distributed.rank);
        // PyTorch writes the list as a text, and cuts long ones short.
        let listed =
            text(event.arguments().group_ranks).and_then(|ranks| serde_json::from_str::<Vec<u32>>(&ranks).ok());
        let place = rank.zip(listed).and_then(|(rank, ranks)| ranks.iter().position(|other| *other == rank.0));
        let place = place.and_then(|place| u16::try_from(place).ok());
        self.places.insert(name.into_owned(), place);
        place
    }

    fn memory(&mut self, event: &Event<'_>, time: Nanos) {
        let arguments = event.arguments();
        let is_host = number(arguments.memory_device_type) == Some(HOST);
        // Traces of 2021 do not say which block it is: sizes without their ends say nothing.
        if arguments.address.is_none() {
            return;
        }
        let (Some(address), Some(size)) = (number(arguments.address), number::<i64>(arguments.size)) else {
            self.timeless += u64::from(!is_host);
            return;
        };
        if !is_host && size != 0 {
            let change = MemoryChange {
                time,
                thread: event.thread(),
                device: number(arguments.memory_device).unwrap_or(0),
                address,
                size,
                allocated: number(arguments.allocated),
                reserved: number(arguments.reserved),
            };
            keep(&mut self.memory, change, &mut self.dropped);
        }
    }
}

/// Keeps a row if there is room for it, and counts it if not.
fn keep<T>(rows: &mut Vec<T>, row: T, dropped: &mut u64) {
    if rows.len() < MOST_ROWS { rows.push(row) } else { *dropped += 1 }
}
