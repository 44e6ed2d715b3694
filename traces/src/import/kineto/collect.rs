//! Takes the events of a trace into as few bytes as the run needs.
//!
//! Calls of the host are kept until it is known which of them launched something; operators and functions, until it is known
//! which of them such a call was in. Annotations on the device's side are copies of those of the host.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

use serde_json::value::RawValue;

use super::{
    super::profile::{
        Activity, AskedCollective, AskedMessage, Call, FunctionCall, Given, MemoryChange, OperatorCall, OptionalNumber,
        Profile, TrainingContext,
    },
    collective::{given_bytes, message_bytes, operation},
    document::Visit,
    event::{Arguments, Event, Meaning, TraceEventType},
    header::Header,
    layout::Layout,
    operator_arguments::{OperatorArguments, OperatorKey},
    pairs::OpenRanges,
    value::{TraceValue, number, text},
};
use crate::{
    driver_call::DriverCall,
    ids::{Correlation, Group, NameId, Nanos, Rank, Sequence, Stream},
    kernels::{AskedCommunication, Carrier, KernelKind},
    membership::Membership,
    operators::Shapes,
    tables::Span,
    vocabulary::SpanKind,
};

/// How many kinds of events that are not read are told apart.
const MOST_KINDS: usize = 16;
/// How many groups a rank is in that it does not list, at most.
const MOST_GROUPS: usize = 1 << 12;

/// How the names of most operators begin. None of those is a range, or asks for communication.
const ATEN: &str = "aten::";

/// PyTorch's number for memory of the host.
const HOST: i32 = 0;

/// What the events of a trace come to. Times are the trace's own.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) header: Header,
    pub(super) profile: Profile,
    /// The rank, if the trace says it.
    rank: Option<Rank>,
    /// How many there are, if it says that.
    world_size: Option<u32>,
    /// The groups of the job by the names they have on this rank.
    groups: HashMap<String, Group>,
    /// Ranges of which only the beginning was seen so far.
    pub(super) open: OpenRanges,
    /// What kernels of a name communicate, if they do.
    communicating: HashMap<NameId, Option<SpanKind>>,
    /// How the arguments of operators are laid out.
    operator_layout: Layout<OperatorKey>,
    /// This rank's place in each group that has messages, by the group's name.
    places: HashMap<String, Option<u16>>,
    pub(super) besides: Besides,
}

/// What events tell besides what is kept of each.
#[derive(Debug, Default)]
pub(super) struct Besides {
    /// How many events were read, those of no use included.
    pub(super) events: u64,
    /// How many events there are of kinds that are not read: those of devices of other makers.
    pub(super) not_read: BTreeMap<String, u64>,
    /// The groups that the trace does not list.
    pub(super) groups: BTreeMap<Group, EventGroup>,
}

impl Besides {
    pub(super) fn add(&mut self, other: Besides) {
        self.events += other.events;
        for (kind, count) in other.not_read {
            *self.not_read.entry(kind).or_default() += count;
        }
        self.groups.extend(other.groups);
    }
}

/// A group as events name it.
#[derive(Debug)]
pub(super) struct EventGroup {
    purpose: Option<String>,
    /// Long lists are cut short, and then no list any more.
    ranks: Vec<Rank>,
    size: Option<u32>,
}

impl EventGroup {
    fn of(arguments: &Arguments<'_>) -> EventGroup {
        EventGroup {
            purpose: text(arguments.group_purpose()).map(Cow::into_owned),
            ranks: listed_ranks(arguments).unwrap_or_default(),
            size: number(arguments.group_size()),
        }
    }

    /// What a rank is in it.
    pub(super) fn membership(self, rank: Rank, group: Group) -> Option<Membership> {
        Membership::listed(rank, group, self.ranks, self.size, self.purpose)
    }
}

impl Visit for Collected {
    fn field(&mut self, key: &str, value: &RawValue) {
        self.header.take(key, value);
    }

    fn begin(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self.besides.events += 1;
        match event.mark {
            Some(TraceEventType::Begin) => self.open.begin(event),
            Some(TraceEventType::End) => match self.open.end(event) {
                Some(range) => self.look_at(&range.event()),
                None => self.profile.rows.timeless += 1,
            },
            _ => self.look_at(event),
        }
        ControlFlow::Continue(())
    }

    fn skip(&mut self) {
        self.besides.events += 1;
    }
}

impl Collected {
    /// Nothing yet, of a rank of so many that knows these groups.
    pub(super) fn new(rank: Option<Rank>, world_size: Option<u32>, groups: HashMap<String, Group>) -> Collected {
        Collected { rank, world_size, groups, ..Collected::default() }
    }

    /// Nothing yet, for a reader of the same trace.
    pub(super) fn beside(&self) -> Collected {
        Collected::new(self.rank, self.world_size, self.groups.clone())
    }

    fn look_at(&mut self, event: &Event<'_>) {
        let not_read = &mut self.besides.not_read;
        let is_counted = |kind: &&str| not_read.len() < MOST_KINDS || not_read.contains_key(*kind);
        if let Some(kind) = event.not_read().filter(is_counted) {
            *not_read.entry(kind.to_owned()).or_default() += 1;
        }
        if let Some(meaning) = event.meaning() {
            self.take(meaning, event);
        }
    }

    fn take(&mut self, meaning: Meaning, event: &Event<'_>) {
        if meaning == Meaning::ThreadName {
            let name = text(event.arguments().name()).unwrap_or_default();
            self.profile.rows.autograd.extend(event.thread().filter(|_| name.contains("pt_autograd")));
            return;
        }
        let duration = if meaning == Meaning::Memory { Some(Nanos(0)) } else { event.duration };
        let times = event.time.zip(duration);
        let Some((start, duration)) = times.filter(|(start, duration)| start.has_end(*duration)) else {
            self.profile.rows.timeless += 1;
            return;
        };
        match meaning {
            Meaning::Kernel => {
                let name = self.profile.names.id(&event.name);
                let kind = self.kernel_kind(name, event);
                self.activity(kind, name, event, start, duration);
            }
            Meaning::Copy | Meaning::Set => {
                let kind = if meaning == Meaning::Copy { SpanKind::Copy } else { SpanKind::Set };
                let name = self.profile.names.id(&event.name);
                self.activity(kind, name, event, start, duration);
            }
            Meaning::Launch => {
                if let Some(correlation) = number(event.arguments().correlation()) {
                    let name = self.profile.names.id(&event.name);
                    self.profile.call(Call { correlation, start, duration, thread: event.thread(), name });
                }
            }
            Meaning::Overhead => {
                if DriverCall::of(&event.name) == Some(DriverCall::Records) {
                    let name = self.profile.names.id(&event.name);
                    // It has no number. Those that work has are small.
                    let correlation = u64::MAX - start.0.unsigned_abs();
                    self.profile.call(Call { correlation, start, duration, thread: None, name });
                }
            }
            Meaning::Annotation => {
                self.collective(event, start, duration);
                self.annotation(TrainingContext::named(&event.name), event, start, duration);
            }
            Meaning::Operator if event.name.starts_with(ATEN) => self.operator(event, start, duration),
            Meaning::Operator => match TrainingContext::of_framework(&event.name) {
                Some(place) => self.annotation(place, event, start, duration),
                None => {
                    // In traces of 2021 ranges are operators.
                    self.collective(event, start, duration);
                    self.operator(event, start, duration);
                }
            },
            Meaning::Function => {
                let name = self.profile.called.function(&event.name);
                self.profile.function(FunctionCall { start, duration, thread: event.thread(), name });
            }
            Meaning::Memory => self.memory(event, start),
            Meaning::Communication => self.message(event, start),
            Meaning::ThreadName => {}
        }
    }

    fn annotation(&mut self, place: TrainingContext, event: &Event<'_>, start: Nanos, duration: Nanos) {
        self.profile.annotation(event.thread(), start, duration, place, &event.name);
    }

    /// Takes a range in which communication of a device is asked for, if it is one.
    fn collective(&mut self, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let asked = AskedCommunication::named(&event.name).filter(|asked| asked.carrier != Carrier::Host);
        if let Some(AskedCommunication { operation: kind, .. }) = asked {
            let bytes = given_bytes(kind, event.arguments());
            self.profile.collective(AskedCollective { thread: event.thread(), start, duration, kind, bytes });
        }
    }

    fn operator(&mut self, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let called = &mut self.profile.called;
        let name = called.operator(&event.name);
        let of_text = || OperatorArguments::of(event.whole_arguments.unwrap_or_default(), &mut self.operator_layout);
        let arguments = event.operator_arguments.unwrap_or_else(of_text);
        let operator = OperatorCall {
            start,
            duration,
            thread: event.thread(),
            name,
            shapes: called.shapes(name, arguments.given, given),
            external: OptionalNumber::of(arguments.external),
            node: OptionalNumber::of(arguments.node),
            forward_thread: arguments.forward_thread,
        };
        self.profile.operator(operator);
    }

    fn activity(&mut self, kind: SpanKind, name: NameId, event: &Event<'_>, start: Nanos, duration: Nanos) {
        let arguments = event.arguments();
        let mut span = Span {
            // Where the arguments do not say, the thread of an activity is its stream.
            stream: number(arguments.stream()).or(event.thread()).map(Stream),
            correlation: number(arguments.correlation()).map(Correlation),
            ..Span::new(kind, name, start, duration)
        };
        if kind.is_communication() {
            span.bytes = message_bytes(arguments);
            span.group = self.group(event);
            span.sequence = number(arguments.sequence()).or_else(|| number(arguments.common())).map(Sequence);
        } else if kind.is_copy() {
            span.bytes = number(arguments.bytes());
        }
        let device = number(arguments.device());
        let external = number(arguments.external());
        self.profile.activity(Activity { span, device, external });
    }

    /// What a kernel is. Each name is looked up once.
    fn kernel_kind(&mut self, name: NameId, event: &Event<'_>) -> SpanKind {
        if event.arguments().collective().is_some() {
            return operation(&event.name, event.arguments());
        }
        let known = self.communicating.entry(name).or_insert_with(|| KernelKind::communication(&event.name));
        known.unwrap_or(SpanKind::Kernel)
    }

    /// The group of a collective. One that the trace did not list gets a number that is the same on all ranks.
    fn group(&mut self, event: &Event<'_>) -> Option<Group> {
        let name = text(event.arguments().group())?;
        if let Some(listed) = self.groups.get(name.as_ref()) {
            return Some(*listed);
        }
        let mut key = crc32fast::Hasher::new();
        key.update(name.as_bytes());
        let size = number(event.arguments().group_size());
        match event.arguments().group_ranks() {
            Some(ranks) => key.update(ranks.written().as_bytes()),
            // Ranks that are in no group together may call theirs the same.
            None if size.is_some() && size != self.world_size => {
                key.update(&self.rank.unwrap_or_default().0.to_le_bytes())
            }
            None => {}
        }
        let group = Group::hashed(key.finalize());
        if self.besides.groups.len() < MOST_GROUPS {
            self.besides.groups.entry(group).or_insert_with(|| EventGroup::of(event.arguments()));
        }
        Some(group)
    }

    /// Takes what a thread asks of a group, if it is a message.
    fn message(&mut self, event: &Event<'_>, start: Nanos) {
        let arguments = event.arguments();
        let kind = operation(&event.name, arguments);
        let peer = match kind {
            SpanKind::Send => arguments.destination(),
            SpanKind::Receive => arguments.source(),
            _ => return,
        };
        let ends = number(peer).zip(self.place(event)).map(|(peer, own)| match kind {
            SpanKind::Send => (own, peer),
            _ => (peer, own),
        });
        let (group, bytes) = (self.group(event), message_bytes(arguments));
        self.profile.message(AskedMessage { thread: event.thread(), start, kind, group, bytes, ends });
    }

    /// This rank's place in the group of a message.
    fn place(&mut self, event: &Event<'_>) -> Option<u16> {
        let name = text(event.arguments().group())?;
        if let Some(known) = self.places.get(name.as_ref()) {
            return *known;
        }
        let listed = self.rank.zip(listed_ranks(event.arguments()));
        let place = listed.and_then(|(rank, ranks)| ranks.iter().position(|other| *other == rank));
        let place = place.and_then(|place| u16::try_from(place).ok());
        self.places.insert(name.into_owned(), place);
        place
    }

    fn memory(&mut self, event: &Event<'_>, time: Nanos) {
        let arguments = event.arguments();
        let is_host = number(arguments.memory_device_type()) == Some(HOST);
        // Traces of 2021 do not say which block it is: sizes without their ends say nothing.
        if arguments.address().is_none() {
            return;
        }
        let (Some(address), Some(size)) = (number(arguments.address()), number::<i64>(arguments.size())) else {
            self.profile.rows.timeless += u64::from(!is_host);
            return;
        };
        if !is_host && size != 0 {
            self.profile.memory(MemoryChange {
                time,
                thread: event.thread(),
                device: number(arguments.memory_device()).unwrap_or(0),
                address,
                size,
                allocated: number(arguments.allocated()),
                reserved: number(arguments.reserved()),
            });
        }
    }
}

/// The ranks of a group, which PyTorch writes as a text, and cuts short where they are many.
fn listed_ranks(arguments: &Arguments<'_>) -> Option<Vec<Rank>> {
    serde_json::from_str(&text(arguments.group_ranks())?).ok()
}

/// What an operator is given, from the trace's words for it.
fn given(words: &str) -> Option<Given> {
    let text = format!("{{{words}}}");
    let arguments = Arguments::of(&text)?;
    let [dimensions, types, concrete] =
        [arguments.dimensions(), arguments.types(), arguments.concrete()].map(|value| value.map(TraceValue::written));
    let shapes = Shapes::of_profiler(&dimensions?, types.as_deref())?;
    let concrete = concrete.and_then(|given| serde_json::from_str(&given).ok());
    Some(Given { shapes, concrete: concrete.unwrap_or_default() })
}
