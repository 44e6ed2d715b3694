//! What a trace is written to: packets, the tracks they are on, and what is counted meanwhile.

use super::{
    packets::Packets,
    sequence::{Content, Sequence},
    tracks::{TrackPlace, Tracks, Unit},
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

    /// A track, or a group of tracks, in its place.
    pub(super) fn track(&mut self, place: &TrackPlace) -> u64 {
        self.tracks.track(&mut self.packets, place)
    }

    /// A counter, in its place.
    pub(super) fn counter(&mut self, place: &TrackPlace, unit: &Unit) -> u64 {
        self.tracks.counter(&mut self.packets, place, unit)
    }
}
