//! What is remembered of the moments that are looked at.

use stepscope_traces::{Phase, Step};

use super::{
    CategoryBytes,
    state::{AllocationPlace, AllocatorState},
    timeline::Timeline,
};
use crate::figures::MemoryPoint;

/// Remembers the fullest moment, and all of them in a few points.
#[derive(Clone, Default)]
pub(super) struct Watch {
    peak: Option<Peak>,
    reserved_peak: Option<u64>,
    timeline: Timeline,
}

/// The fullest moment, the first of them.
#[derive(Clone)]
pub(super) struct Peak {
    /// How many events had happened by then.
    pub(super) after: usize,
    pub(super) time: i64,
    pub(super) step: Option<Step>,
    pub(super) phase: Option<Phase>,
    pub(super) bytes: CategoryBytes,
    pub(super) allocated: u64,
    pub(super) reserved: Option<u64>,
}

impl Watch {
    /// The fullest moment so far.
    pub(super) fn peak(&self) -> Option<&Peak> {
        self.peak.as_ref()
    }

    /// Looks at what there is after some events: at a time, in a step's window, after an allocation at a place. An
    /// allocation knows better than its time which step it was for, since programs run ahead of their devices.
    pub(super) fn look(
        &mut self,
        after: usize,
        time: i64,
        step: Option<Step>,
        place: Option<&AllocationPlace>,
        state: &AllocatorState,
    ) {
        self.timeline.add(MemoryPoint { time_ns: time, bytes: state.bytes }, state.allocated);
        self.reserved_peak = self.reserved_peak.max(state.reserved);
        if self.peak.as_ref().is_none_or(|peak| peak.allocated < state.allocated) {
            self.peak = Some(Peak {
                after,
                time,
                step: place.and_then(|place| place.step).or(step),
                phase: place.and_then(|place| place.phase),
                bytes: state.bytes,
                allocated: state.allocated,
                reserved: state.reserved,
            });
        }
    }

    /// The peak, the most that was taken from the device, and the timeline; nothing if there was nothing to look at.
    pub(super) fn finish(self) -> Option<(Peak, Option<u64>, Vec<MemoryPoint>)> {
        Some((self.peak?, self.reserved_peak, self.timeline.finish()))
    }
}
