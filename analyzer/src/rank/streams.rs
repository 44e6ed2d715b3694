//! What the streams of a rank are for.

use std::collections::BTreeMap;

use stepscope_traces::{SpanKind, Spans, Stream};

use crate::{figures::Class, stored::fields};

/// A stream, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamUse {
    /// Which stream; none, where that is not known.
    pub stream: Option<Stream>,
    /// What it does most often: one copy of all weights may take longer than many kernels.
    pub class: Class,
    /// The time of its compute kernels.
    pub compute_ns: i64,
}

/// How many kernels, copies and fills say something of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelCounts {
    /// Their phase.
    pub phase: u64,
    /// Their layer.
    pub layer: u64,
    /// What they compute.
    pub flops: u64,
    /// What they move.
    pub bytes: u64,
    /// Who launched them.
    pub origin: u64,
}

fields!(LabelCounts { phase, layer, flops, bytes, origin });

/// How often a stream did something, by [`Class`], and the time of its compute kernels.
#[derive(Clone, Copy, Default)]
struct Done {
    counts: [u64; 3],
    compute_ns: i64,
}

fields!(Done { counts, compute_ns });

/// Adds up what streams do.
#[derive(Default)]
pub(crate) struct StreamTimes {
    /// Of each stream, how often it did something, by [`Class`], and the time of its compute kernels.
    streams: BTreeMap<Option<Stream>, Done>,
    /// How many spans there are, by kind in the order of [`SpanKind::ALL`].
    counts: [u64; SpanKind::ALL.len()],
    labels: LabelCounts,
}

fields!(StreamTimes { streams, counts, labels });

impl StreamTimes {
    pub(crate) fn take(&mut self, spans: &Spans) {
        // A batch holds one stream after another.
        let mut current: (Option<Stream>, Done) = (None, Done::default());
        for row in 0..spans.len() {
            let kind = spans.kind.get(row);
            self.counts[kind as usize] += 1;
            let Some(class) = Class::of(kind) else { continue };
            if class != Class::Communication {
                self.labels.phase += u64::from(spans.phase.get(row).is_some());
                self.labels.layer += u64::from(spans.layer.get(row).is_some());
                self.labels.flops += u64::from(spans.flops.get(row).is_some());
                self.labels.bytes += u64::from(spans.bytes.get(row).is_some());
                self.labels.origin += u64::from(spans.origin.get(row).is_some());
            }
            let stream = spans.stream.get(row);
            if stream != current.0 {
                self.add(current);
                current = (stream, Done::default());
            }
            current.1.counts[class as usize] += 1;
            if class == Class::Compute {
                current.1.compute_ns = current.1.compute_ns.saturating_add(spans.duration_ns.get(row).0.max(0));
            }
        }
        self.add(current);
    }

    fn add(&mut self, (stream, more): (Option<Stream>, Done)) {
        if more.counts != [0; 3] {
            let done = self.streams.entry(stream).or_default();
            done.counts.iter_mut().zip(more.counts).for_each(|(count, more)| *count += more);
            done.compute_ns = done.compute_ns.saturating_add(more.compute_ns);
        }
    }

    /// How many spans there are, by kind.
    pub(crate) fn counts(&self) -> [u64; SpanKind::ALL.len()] {
        self.counts
    }

    /// How many kernels, copies and fills say what.
    pub(crate) fn labels(&self) -> LabelCounts {
        self.labels
    }

    /// The streams, by number.
    pub(crate) fn uses(&self) -> Vec<StreamUse> {
        let of = |(stream, done): (&Option<Stream>, &Done)| {
            let classes = [Class::Compute, Class::Communication, Class::Copy];
            let class = classes.into_iter().rev().max_by_key(|class| done.counts[*class as usize])?;
            Some(StreamUse { stream: *stream, class, compute_ns: done.compute_ns })
        };
        self.streams.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Nanos, Phase, Span};

    use super::*;

    #[test]
    fn a_stream_is_for_what_it_does_most_often() {
        let mut spans = Spans::default();
        for (stream, kind, duration) in [
            (7, SpanKind::Kernel, 100),
            (7, SpanKind::Kernel, 30),
            (7, SpanKind::Copy, 2000),
            (9, SpanKind::Set, 5),
            (7, SpanKind::AllReduce, 10),
            (3, SpanKind::Send, 0),
            (1, SpanKind::Launch, 50),
        ] {
            let phase = [5, 10].contains(&duration).then_some(Phase::Forward);
            let span = Span::new(kind, FIRST_NAME, Nanos(0), Nanos(duration));
            spans.push(&Span { stream: Some(Stream(stream)), phase, ..span });
        }
        let mut times = StreamTimes::default();
        times.take(&spans);
        let stream_use = |(stream, class, compute_ns)| StreamUse { stream: Some(Stream(stream)), class, compute_ns };
        let expected = [(3, Class::Communication, 0), (7, Class::Compute, 130), (9, Class::Copy, 0)];
        assert_eq!(times.uses(), expected.map(stream_use));
        let labels = LabelCounts { phase: 1, ..LabelCounts::default() };
        assert_eq!(times.labels(), labels, "of what communicates nothing is counted");
        assert_eq!((times.counts()[SpanKind::Launch as usize], times.counts().iter().sum::<u64>()), (1, 7));
    }
}
