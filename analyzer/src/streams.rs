//! What the streams of a rank are for.

use std::collections::BTreeMap;

use stepscope_traces::{SpanKind, Spans, Stream};

use crate::activity::Class;

/// A stream, and what most of its time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamUse {
    /// Which stream; none, where that is not known.
    pub stream: Option<Stream>,
    /// What it does most.
    pub class: Class,
    /// The time of its compute kernels.
    pub compute_ns: i64,
}

/// Adds up what streams do.
#[derive(Default)]
pub(crate) struct StreamTimes {
    /// Of each stream, its time by [`Class`].
    times: BTreeMap<Option<Stream>, [i64; 3]>,
    /// How many spans there are, by kind in the order of [`SpanKind::ALL`].
    counts: [u64; SpanKind::ALL.len()],
}

impl StreamTimes {
    pub(crate) fn take(&mut self, spans: &Spans) {
        // A batch holds one stream after another.
        let mut current: (Option<Stream>, [i64; 3]) = (None, [0; 3]);
        let mut any = false;
        for row in 0..spans.len() {
            let kind = spans.kind.get(row);
            self.counts[kind as usize] += 1;
            let Some(class) = Class::of(kind) else { continue };
            let stream = spans.stream.get(row);
            if stream != current.0 {
                self.add(current, any);
                current = (stream, [0; 3]);
            }
            any = true;
            let time = &mut current.1[class as usize];
            // Without length it is there all the same.
            *time = time.saturating_add(spans.duration_ns.get(row).0.max(1));
        }
        self.add(current, any);
    }

    fn add(&mut self, (stream, more): (Option<Stream>, [i64; 3]), any: bool) {
        if any && more != [0; 3] {
            let times = self.times.entry(stream).or_default();
            times.iter_mut().zip(more).for_each(|(time, more)| *time = time.saturating_add(more));
        }
    }

    /// How many spans there are, by kind.
    pub(crate) fn counts(&self) -> [u64; SpanKind::ALL.len()] {
        self.counts
    }

    /// The streams, by number.
    pub(crate) fn uses(&self) -> Vec<StreamUse> {
        let of = |(stream, times): (&Option<Stream>, &[i64; 3])| {
            let classes = [Class::Compute, Class::Communication, Class::Copy];
            let most = classes.into_iter().rev().max_by_key(|class| times[*class as usize])?;
            Some(StreamUse { stream: *stream, class: most, compute_ns: times[Class::Compute as usize] })
        };
        self.times.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Nanos, Span};

    use super::*;

    #[test]
    fn a_stream_is_for_what_takes_most_of_its_time() {
        let mut spans = Spans::default();
        for (stream, kind, duration) in [
            (7, SpanKind::Kernel, 100),
            (7, SpanKind::Copy, 20),
            (9, SpanKind::Set, 5),
            (7, SpanKind::AllReduce, 10),
            (3, SpanKind::Send, 0),
            (1, SpanKind::Launch, 50),
        ] {
            spans
                .push(&Span { stream: Some(Stream(stream)), ..Span::new(kind, FIRST_NAME, Nanos(0), Nanos(duration)) });
        }
        let mut times = StreamTimes::default();
        times.take(&spans);
        let stream_use = |(stream, class, compute_ns)| StreamUse { stream: Some(Stream(stream)), class, compute_ns };
        let expected = [(3, Class::Communication, 0), (7, Class::Compute, 100), (9, Class::Copy, 0)];
        assert_eq!(times.uses(), expected.map(stream_use));
        assert_eq!((times.counts()[SpanKind::Launch as usize], times.counts().iter().sum::<u64>()), (1, 6));
    }
}
