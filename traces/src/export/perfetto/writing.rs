//! What a trace is written to: packets, the tracks they are on, and what is counted meanwhile.

use super::{
    packets::Packets,
    schema::ProcessDescriptor,
    sequence::{Content, Sequence},
    tracks::{Group, Tracks, Unit},
    written::Written,
};

/// A trace that is being written.
pub(super) struct Writing<'w> {
    pub(super) packets: Packets<'w>,
    pub(super) written: Written,
    tracks: Tracks,
}

impl<'w> Writing<'w> {
    pub(super) fn begin(mut packets: Packets<'w>) -> Writing<'w> {
        let tracks = Tracks::begin(&mut packets);
        Writing { packets, tracks, written: Written::default() }
    }

    /// Begins a sequence of events on a track.
    pub(super) fn sequence(&mut self, track: u64, content: Content) -> Sequence {
        self.tracks.sequence(&mut self.packets, track, content)
    }

    /// A process, in its place among all.
    pub(super) fn process(&mut self, process: ProcessDescriptor, order: i32) -> u64 {
        self.tracks.process(&mut self.packets, process, order)
    }

    /// A thread of a process.
    pub(super) fn thread(&mut self, process: i32, thread: i32, name: String) -> u64 {
        self.tracks.thread(&mut self.packets, process, thread, name)
    }

    /// A group of counters of a process.
    pub(super) fn group(&mut self, process: u64, group: Group) -> u64 {
        self.tracks.group(&mut self.packets, process, group)
    }

    /// A counter of a group, in its place there.
    pub(super) fn counter(&mut self, group: u64, name: &str, unit: &Unit, order: i32) -> u64 {
        self.tracks.counter(&mut self.packets, group, name, unit, order)
    }
}
