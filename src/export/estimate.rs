//! How large a trace would be, from what a run has: to write it too large and begin again takes as long as to write it.

use stepscope_analyzer::{LabelCounts, Overlay, RankOverlay};
use stepscope_traces::{
    SpanKind,
    export::perfetto::{Detail, Level},
};

/// What levels take, at least.
pub(super) struct Estimate<'a> {
    overlay: &'a Overlay,
    /// Of most times, by the length of the run.
    time: u64,
}

// What a packet takes besides its time, a name or a category, and arguments with values of a usual size.
const PACKET: u64 = 9;
const TEXT: u64 = 2;
const VALUE: u64 = 6;
const PHASE: u64 = 7;
const LAYER: u64 = 6;
const BYTES: u64 = 8;
const FLOPS_AND_THEIR_RATE: u64 = 22;
const OPERATOR: u64 = 8;

impl Estimate<'_> {
    pub(super) fn of(overlay: &Overlay) -> Estimate<'_> {
        let lengths = overlay.ranks.iter().filter_map(|rank| rank.extent).map(|(first, last)| last.abs_diff(first));
        // Seven bits a byte; most of a run is later than its first quarter.
        let bits = u64::from((lengths.max().unwrap_or(0) / 4).max(1).ilog2() + 1);
        Estimate { overlay, time: bits.div_ceil(7) }
    }

    /// The most detail that may fit, where a limit depends on it.
    pub(super) fn most(&self, limit: impl Fn(Detail) -> u64) -> Detail {
        let bytes = |detail: Detail| {
            Level::ALL.iter().filter(|level| detail.has(**level)).map(|level| self.bytes(*level)).sum::<u64>()
        };
        let mut detail = Detail::ALL;
        while bytes(detail) > limit(detail) {
            let Some(less) = detail.less() else { break };
            detail = less;
        }
        detail
    }

    /// Whether a run has something on a level.
    pub(super) fn has(&self, level: Level) -> bool {
        self.bytes(level) > 0
    }

    /// What a level takes, at least.
    fn bytes(&self, level: Level) -> u64 {
        let slice = 2 * (PACKET + self.time) + 2 * TEXT;
        match level {
            Level::Arguments => {
                let of = |LabelCounts { phase, layer, flops, bytes, origin }: LabelCounts| {
                    PHASE * phase + LAYER * layer + BYTES * bytes + FLOPS_AND_THEIR_RATE * flops + OPERATOR * origin
                };
                self.overlay.ranks.iter().map(|rank| of(rank.labels)).sum()
            }
            Level::Host => slice * self.spans(|kind| matches!(kind, SpanKind::Range | SpanKind::Launch)),
            Level::MemoryByCategory | Level::Memory => {
                let events: u64 = self.overlay.ranks.iter().map(|rank| rank.memory_events).sum();
                (PACKET + self.time + VALUE) * events
            }
            Level::Layers => slice * self.spans(|kind| kind == SpanKind::Layer),
            Level::Kernels => slice * self.spans(|kind| kind == SpanKind::Kernel || kind.is_copy()),
            Level::Communication => slice * self.spans(SpanKind::is_communication),
            Level::Phases => slice * self.spans(|kind| matches!(kind, SpanKind::MicroBatch | SpanKind::Phase)),
        }
    }

    /// How many spans there are of some kinds.
    fn spans(&self, kinds: impl Fn(SpanKind) -> bool) -> u64 {
        let of = |rank: &RankOverlay| {
            SpanKind::ALL.iter().zip(rank.spans).filter(|(kind, _)| kinds(**kind)).map(|(_, count)| count).sum::<u64>()
        };
        self.overlay.ranks.iter().map(of).sum()
    }
}
