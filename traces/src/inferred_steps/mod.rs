//! Steps of a program that was recorded as it is and numbers none: by what repeats in the stream it computes most on.

mod repetition;

use std::collections::HashMap;

use crate::{
    ids::{NameId, Nanos, Step, Stream},
    notes::CollectorSource,
    rank_info::RankInfo,
    tables::Spans,
    vocabulary::SpanKind,
};
use repetition::repeated;

/// When each inferred step of a rank begins, and the last one ends, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct InferredSteps {
    borders: Vec<Nanos>,
}

impl InferredSteps {
    /// Gives every activity that has no step the one it began in.
    pub(crate) fn number(&self, spans: &mut Spans) {
        for row in (0..spans.len()).filter(|row| !spans.kind.get(*row).is_annotation()) {
            let begun = self.borders.partition_point(|border| *border <= spans.start_ns.get(row));
            if (1..self.borders.len()).contains(&begun) && spans.step.get(row).is_none() {
                spans.step.set(row, Step(begun as i32 - 1));
            }
        }
    }
}

/// The kernels of a rank that says nothing of its steps, by stream.
#[derive(Default)]
pub(crate) struct UnnumberedKernels {
    /// Whoever numbers one step numbers those that matter.
    numbered: bool,
    streams: HashMap<Option<Stream>, Vec<Ran>>,
}

/// A kernel that ran.
#[derive(Clone, Copy)]
struct Ran {
    start: Nanos,
    duration: Nanos,
    name: NameId,
}

impl UnnumberedKernels {
    /// Whether steps of a rank may be inferred: a program that was written to be recorded says of its steps itself.
    pub(crate) fn may_be_of(info: &RankInfo) -> bool {
        info.collector.source == Some(CollectorSource::Injected)
    }

    pub(crate) fn take(&mut self, spans: &Spans) {
        if self.numbered {
            return;
        }
        for row in (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Kernel) {
            if spans.step.get(row).is_some() {
                *self = UnnumberedKernels { numbered: true, streams: HashMap::new() };
                return;
            }
            let (start, duration) = (spans.start_ns.get(row), spans.duration_ns.get(row).max(Nanos(0)));
            let ran = Ran { start, duration, name: spans.name.get(row) };
            self.streams.entry(spans.stream.get(row)).or_default().push(ran);
        }
    }

    /// The steps, if something repeats.
    pub(crate) fn steps(self) -> Option<InferredSteps> {
        let total = |kernels: &Vec<Ran>| kernels.iter().map(|ran| i128::from(ran.duration.0)).sum::<i128>();
        let mut kernels = self.streams.into_values().max_by_key(total)?;
        kernels.sort_by_key(|ran| ran.start);
        let stream: Vec<(NameId, Nanos)> = kernels.iter().map(|ran| (ran.name, ran.duration)).collect();
        let found = repeated(&stream)?;
        let last = kernels[..found.end].last()?;
        let begins = found.starts.iter().map(|place| kernels[*place].start);
        Some(InferredSteps { borders: begins.chain([last.start + last.duration]).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Rank, names::FIRST_NAME, tables::Span};

    /// Steps of eight kernels, each of another name, one every 100 ns, on a stream; and a second stream that does little.
    fn spans(steps: i64) -> Spans {
        let mut spans = Spans::default();
        for step in 0..steps {
            for kernel in 0..8 {
                let (name, start) = (NameId(FIRST_NAME.0 + kernel), Nanos(step * 1000 + i64::from(kernel) * 100));
                let span = Span { stream: Some(Stream(7)), ..Span::new(SpanKind::Kernel, name, start, Nanos(90)) };
                spans.push(&span);
            }
            let other = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(step * 1000 + 5), Nanos(1));
            spans.push(&Span { stream: Some(Stream(8)), ..other });
        }
        spans
    }

    #[test]
    fn steps_are_what_repeats() {
        let (mut kernels, mut spans) = (UnnumberedKernels::default(), spans(10));
        kernels.take(&spans);
        let steps = kernels.steps().unwrap();
        let begins = (0..10).map(|step| Nanos(step * 1000));
        assert_eq!(steps.borders, begins.chain([Nanos(9 * 1000 + 790)]).collect::<Vec<_>>());
        let after = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(9790), Nanos(1));
        spans.push(&after);
        spans.push(&Span::new(SpanKind::Phase, FIRST_NAME, Nanos(5000), Nanos(1)));
        steps.number(&mut spans);
        let numbered = spans.rows().take(90).map(|span| span.step);
        assert!(numbered.zip(spans.rows()).all(|(step, span)| step == Some(Step((span.start_ns.0 / 1000) as i32))));
        assert!(spans.rows().skip(90).all(|span| span.step.is_none()), "the end of the last step, and annotations");
    }

    #[test]
    fn who_numbers_steps_or_was_written_to_be_recorded_needs_none() {
        let mut numbered = UnnumberedKernels::default();
        numbered.take(&spans(10));
        let mut one = Spans::default();
        let span = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(0), Nanos(1));
        one.push(&Span { step: Some(Step(3)), ..span });
        numbered.take(&one);
        assert_eq!(numbered.steps(), None);
        let mut info = RankInfo::of_this_process(Rank(0));
        assert!(!UnnumberedKernels::may_be_of(&info));
        info.collector.source = Some(CollectorSource::Injected);
        assert!(UnnumberedKernels::may_be_of(&info));
    }
}
