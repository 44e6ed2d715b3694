//! Tracks: a group for each rank, with a track for each stream, and counters in groups of their own. Numbers are given out
//! here. Nothing is a process or a thread: those are shown with numbers, which a rank and a stream do not have.

use super::{
    packets::Packets,
    schema::{ChildTracksOrdering, CounterDescriptor, CounterUnit, Data, TracePacket, TrackDescriptor},
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

/// The number of the track that all others are below.
pub(super) const ROOT: u64 = 0;

/// What is below a track has an order.
const EXPLICIT: Option<i32> = Some(ChildTracksOrdering::Explicit as i32);

/// Where a track stands.
pub(super) struct TrackPlace {
    /// What it is below.
    pub(super) parent: u64,
    /// Where among those there. Those in one place with one name are shown as one.
    pub(super) order: i32,
    pub(super) name: String,
}

/// A group of counters. They are shown in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Memory,
    Training,
    Device,
}

impl Group {
    pub(super) fn word(self) -> &'static str {
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
    /// Begins with the root of all tracks, which says that groups have an order.
    pub(super) fn begin(packets: &mut Packets<'_>) -> Tracks {
        let tracks = Tracks { next_track: 1, next_sequence: FIRST_SEQUENCE, next_other_sequence: FIRST_OTHER_SEQUENCE };
        describe(packets, TrackDescriptor { uuid: Some(ROOT), child_ordering: EXPLICIT, ..Default::default() });
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

    /// A track, or a group of tracks, in its place.
    pub(super) fn track(&mut self, packets: &mut Packets<'_>, place: &TrackPlace) -> u64 {
        self.describe(packets, place, TrackDescriptor { child_ordering: EXPLICIT, ..Default::default() })
    }

    /// A counter, in its place.
    pub(super) fn counter(&mut self, packets: &mut Packets<'_>, place: &TrackPlace, unit: &Unit) -> u64 {
        let counter = match unit {
            Unit::Bytes => CounterDescriptor { unit: Some(CounterUnit::SizeBytes as i32), unit_name: None },
            Unit::Named(unit) => CounterDescriptor { unit: None, unit_name: Some(clean(unit).into_owned()) },
        };
        self.describe(packets, place, TrackDescriptor { counter: Some(counter), ..Default::default() })
    }

    fn describe(&mut self, packets: &mut Packets<'_>, place: &TrackPlace, descriptor: TrackDescriptor) -> u64 {
        let uuid = self.next_track;
        self.next_track += 1;
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(place.parent),
            name: Some(clean(&place.name).into_owned()),
            sibling_order_rank: Some(place.order),
            ..descriptor
        };
        describe(packets, descriptor);
        uuid
    }
}

fn describe(packets: &mut Packets<'_>, descriptor: TrackDescriptor) {
    packets.push(&TracePacket { data: Some(Data::TrackDescriptor(descriptor)), ..Default::default() });
}
