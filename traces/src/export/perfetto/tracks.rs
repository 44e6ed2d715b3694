//! Tracks: a process for each rank, a thread for each stream, and counters in groups. Numbers are given out here.

use super::{
    packets::Packets,
    schema::{
        ChildTracksOrdering, CounterDescriptor, CounterUnit, Data, ProcessDescriptor, ProcessOrdering,
        ThreadDescriptor, TracePacket, TrackDescriptor,
    },
    sequence::{Content, Sequence},
    text::clean,
};

/// Sequences are numbered from here: the first number is Perfetto's own service's.
const FIRST_SEQUENCE: u32 = 2;
/// Those with few packets from here: the numbers that take a byte are for those that say theirs often.
const FIRST_OTHER_SEQUENCE: u32 = 1 << 7;

/// Gives out the numbers of tracks and of sequences.
pub(super) struct Tracks {
    next_track: u64,
    next_sequence: u32,
    next_other_sequence: u32,
}

/// A group of counters. They are shown in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Memory,
    Training,
    Device,
}

impl Group {
    fn word(self) -> &'static str {
        match self {
            Group::Memory => "memory",
            Group::Training => "training",
            Group::Device => "device",
        }
    }
}

/// What a counter counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Whatever this says; nothing, where it is not known.
    Named(String),
}

impl Tracks {
    /// Begins with the root of all tracks, which says that processes have an order.
    pub(super) fn begin(packets: &mut Packets<'_>) -> Tracks {
        let tracks = Tracks { next_track: 1, next_sequence: FIRST_SEQUENCE, next_other_sequence: FIRST_OTHER_SEQUENCE };
        let process_ordering = Some(ProcessOrdering::Explicit as i32);
        describe(packets, TrackDescriptor { uuid: Some(0), process_ordering, ..Default::default() });
        tracks
    }

    /// Begins a sequence.
    pub(super) fn sequence(&mut self, packets: &mut Packets<'_>, track: u64, content: Content) -> Sequence {
        let next = match content {
            Content::Slices | Content::Values if self.next_sequence < FIRST_OTHER_SEQUENCE => &mut self.next_sequence,
            _ => &mut self.next_other_sequence,
        };
        *next += 1;
        Sequence::begin(packets, *next - 1, track, content)
    }

    /// A process, in its place among all.
    pub(super) fn process(&mut self, packets: &mut Packets<'_>, process: ProcessDescriptor, order: i32) -> u64 {
        let uuid = self.uuid();
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            process: Some(process),
            child_ordering: Some(ChildTracksOrdering::Explicit as i32),
            sibling_order_rank: Some(order),
            ..Default::default()
        };
        describe(packets, descriptor);
        uuid
    }

    /// A thread of a process. Threads are shown in the order of their numbers, which no two processes share.
    pub(super) fn thread(&mut self, packets: &mut Packets<'_>, pid: i32, tid: i32, name: String) -> u64 {
        let uuid = self.uuid();
        let thread = ThreadDescriptor { pid: Some(pid), tid: Some(tid), thread_name: Some(name) };
        describe(packets, TrackDescriptor { uuid: Some(uuid), thread: Some(thread), ..Default::default() });
        uuid
    }

    /// A group of counters of a process.
    pub(super) fn group(&mut self, packets: &mut Packets<'_>, process: u64, group: Group) -> u64 {
        let uuid = self.uuid();
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(process),
            name: Some(group.word().into()),
            child_ordering: Some(ChildTracksOrdering::Explicit as i32),
            sibling_order_rank: Some(group as i32),
            ..Default::default()
        };
        describe(packets, descriptor);
        uuid
    }

    /// A counter of a group, in its place there.
    pub(super) fn counter(
        &mut self,
        packets: &mut Packets<'_>,
        group: u64,
        name: &str,
        unit: &Unit,
        order: i32,
    ) -> u64 {
        let uuid = self.uuid();
        let counter = match unit {
            Unit::Bytes => CounterDescriptor { unit: Some(CounterUnit::SizeBytes as i32), unit_name: None },
            Unit::Named(unit) => CounterDescriptor { unit: None, unit_name: Some(clean(unit).into_owned()) },
        };
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(group),
            name: Some(clean(name).into_owned()),
            counter: Some(counter),
            sibling_order_rank: Some(order),
            ..Default::default()
        };
        describe(packets, descriptor);
        uuid
    }

    fn uuid(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track - 1
    }
}

fn describe(packets: &mut Packets<'_>, descriptor: TrackDescriptor) {
    packets.push(&TracePacket { data: Some(Data::TrackDescriptor(descriptor)), ..Default::default() });
}
