//! A span in half the bytes, for its way through a queue: what a thread writes there another one has to fetch.

use stepscope_traces::{
    Correlation, Group, Layer, MicroBatch, NameId, Nanos, Phase, Sequence, Span, SpanKind, Stage, Step, Stream,
};

use crate::ticks::{TickMap, Ticks};

/// A span, and whether its times are still to be made of ticks.
#[derive(Clone, Copy)]
pub(crate) struct PackedSpan {
    /// Start and duration, or ticks at its beginning and its end.
    times: [i64; 2],
    correlation: u64,
    bytes: u64,
    sequence: u64,
    flops: u64,
    name: NameId,
    origin: NameId,
    stream: u32,
    group: u32,
    step: i32,
    micro_batch: i32,
    layer: i32,
    stage: i16,
    /// Which of these have a value, and whether the times are ticks.
    present: u16,
    kind: SpanKind,
    phase: Option<Phase>,
}

const STREAM: u16 = 1;
const CORRELATION: u16 = 1 << 1;
const STEP: u16 = 1 << 2;
const MICRO_BATCH: u16 = 1 << 3;
const LAYER: u16 = 1 << 4;
const STAGE: u16 = 1 << 5;
const BYTES: u16 = 1 << 6;
const GROUP: u16 = 1 << 7;
const SEQUENCE: u16 = 1 << 8;
const FLOPS: u16 = 1 << 9;
const TICKED: u16 = 1 << 10;
const ORIGIN: u16 = 1 << 11;

impl PackedSpan {
    /// A span with its own times.
    pub(crate) fn timed(span: &Span) -> PackedSpan {
        PackedSpan::pack(span, [span.start_ns.0, span.duration_ns.0], 0)
    }

    /// A span from one reading of the counter to another.
    #[inline]
    pub(crate) fn ticked(span: &Span, began: Ticks, ended: Ticks) -> PackedSpan {
        PackedSpan::pack(span, [began.0 as i64, ended.0 as i64], TICKED)
    }

    #[inline]
    fn pack(span: &Span, times: [i64; 2], mut present: u16) -> PackedSpan {
        let mut flag = |is_there: bool, bit: u16| present |= if is_there { bit } else { 0 };
        flag(span.stream.is_some(), STREAM);
        flag(span.correlation.is_some(), CORRELATION);
        flag(span.step.is_some(), STEP);
        flag(span.micro_batch.is_some(), MICRO_BATCH);
        flag(span.layer.is_some(), LAYER);
        flag(span.stage.is_some(), STAGE);
        flag(span.bytes.is_some(), BYTES);
        flag(span.group.is_some(), GROUP);
        flag(span.sequence.is_some(), SEQUENCE);
        flag(span.flops.is_some(), FLOPS);
        flag(span.origin.is_some(), ORIGIN);
        PackedSpan {
            times,
            correlation: span.correlation.unwrap_or_default().0,
            bytes: span.bytes.unwrap_or_default(),
            sequence: span.sequence.unwrap_or_default().0,
            flops: span.flops.unwrap_or_default(),
            name: span.name,
            origin: span.origin.unwrap_or_default(),
            stream: span.stream.unwrap_or_default().0,
            group: span.group.unwrap_or_default().0,
            step: span.step.unwrap_or_default().0,
            micro_batch: span.micro_batch.unwrap_or_default().0,
            layer: span.layer.unwrap_or_default().0,
            stage: span.stage.unwrap_or_default().0,
            present,
            kind: span.kind,
            phase: span.phase,
        }
    }

    /// The span, in the rank's clock.
    pub(crate) fn unpack(&self, ticks: &TickMap) -> Span {
        let has = |bit: u16| self.present & bit != 0;
        let (start_ns, duration_ns) = if has(TICKED) {
            let [began, ended] = self.times.map(|reading| ticks.time(Ticks(reading as u64)));
            (began, ended - began)
        } else {
            (Nanos(self.times[0]), Nanos(self.times[1]))
        };
        Span {
            start_ns,
            duration_ns,
            kind: self.kind,
            name: self.name,
            stream: has(STREAM).then_some(Stream(self.stream)),
            correlation: has(CORRELATION).then_some(Correlation(self.correlation)),
            step: has(STEP).then_some(Step(self.step)),
            micro_batch: has(MICRO_BATCH).then_some(MicroBatch(self.micro_batch)),
            phase: self.phase,
            layer: has(LAYER).then_some(Layer(self.layer)),
            stage: has(STAGE).then_some(Stage(self.stage)),
            bytes: has(BYTES).then_some(self.bytes),
            group: has(GROUP).then_some(Group(self.group)),
            sequence: has(SEQUENCE).then_some(Sequence(self.sequence)),
            flops: has(FLOPS).then_some(self.flops),
            origin: has(ORIGIN).then_some(self.origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_values_is_unpacked_as_it_was() {
        for present in 0..1 << 12 {
            let has = |bit: u32| present & 1 << bit != 0;
            let span = Span {
                stream: has(0).then_some(Stream(u32::MAX)),
                correlation: has(1).then_some(Correlation(u64::MAX)),
                step: has(2).then_some(Step(-1)),
                micro_batch: has(3).then_some(MicroBatch(i32::MAX)),
                layer: has(4).then_some(Layer(i32::MIN)),
                stage: has(5).then_some(Stage(-2)),
                bytes: has(6).then_some(0),
                group: has(7).then_some(Group(0)),
                sequence: has(8).then_some(Sequence(9)),
                flops: has(9).then_some(u64::MAX - 1),
                phase: has(10).then_some(Phase::Backward),
                origin: has(11).then_some(NameId(5000)),
                ..Span::new(SpanKind::Launch, NameId(77), Nanos(i64::MIN), Nanos(i64::MAX))
            };
            assert_eq!(PackedSpan::timed(&span).unpack(&TickMap::default()), span);
        }
        assert!(size_of::<PackedSpan>() <= 88, "{}", size_of::<PackedSpan>());
    }
}
