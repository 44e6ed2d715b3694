//! Steps of a program that was recorded as it is and numbers none: by what repeats in the stream it computes most on.

use std::collections::HashMap;

use stepscope_traces::{NameId, Nanos, RankInfo, SpanKind, Spans, Step, Stream, infer_steps};

use crate::steps::StepWindow;

/// The kernels of a rank that says nothing of its steps, by stream.
pub(crate) struct UnnumberedKernels {
    /// Of programs that were written to be recorded none is needed: who has steps there says so.
    wanted: bool,
    streams: HashMap<Option<Stream>, Vec<Ran>>,
}

/// A kernel that ran.
#[derive(Clone, Copy)]
struct Ran {
    start: i64,
    duration: i64,
    name: NameId,
}

impl UnnumberedKernels {
    pub(crate) fn of(info: &RankInfo) -> UnnumberedKernels {
        let source = info.collector.get("source").and_then(|source| source.as_str());
        UnnumberedKernels { wanted: source == Some("injected"), streams: HashMap::new() }
    }

    pub(crate) fn take(&mut self, spans: &Spans) {
        if !self.wanted {
            return;
        }
        for row in (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Kernel) {
            // Whoever numbers one step numbers those that matter.
            if spans.step.get(row).is_some() {
                *self = UnnumberedKernels { wanted: false, streams: HashMap::new() };
                return;
            }
            let (start, duration) = (spans.start_ns.get(row).0, spans.duration_ns.get(row).0.max(0));
            let ran = Ran { start, duration, name: spans.name.get(row) };
            self.streams.entry(spans.stream.get(row)).or_default().push(ran);
        }
    }

    /// The steps, from 0; none where nothing repeats.
    pub(crate) fn steps(self) -> Vec<StepWindow> {
        let busiest =
            self.streams.into_values().max_by_key(|kernels| kernels.iter().map(|ran| ran.duration).sum::<i64>());
        let Some(mut kernels) = busiest else { return Vec::new() };
        kernels.sort_by_key(|ran| ran.start);
        let stream: Vec<(NameId, Nanos)> = kernels.iter().map(|ran| (ran.name, Nanos(ran.duration))).collect();
        let Some(found) = infer_steps(&stream) else { return Vec::new() };
        let last = kernels[..found.end].last().map_or(0, |ran| ran.start.saturating_add(ran.duration));
        let begins = found.starts.iter().map(|place| kernels[*place].start);
        let ends = begins.clone().skip(1).chain([last]);
        let window = |(step, (start, end))| StepWindow { step: Step(step as i32), start, end };
        begins.zip(ends).enumerate().map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Rank, Span};

    use super::*;

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

    fn injected(source: &str) -> UnnumberedKernels {
        let mut info = RankInfo::of_this_process(Rank(0));
        info.collector.insert("source".into(), source.into());
        UnnumberedKernels::of(&info)
    }

    #[test]
    fn steps_are_what_repeats() {
        let mut kernels = injected("injected");
        kernels.take(&spans(10));
        let steps = kernels.steps();
        assert_eq!(steps.len(), 10);
        assert!(steps.iter().enumerate().all(|(number, step)| step.step == Step(number as i32)));
        assert!(steps.iter().take(9).all(|step| step.end - step.start == 1000), "{steps:?}");
        assert_eq!(steps[9].end, 9 * 1000 + 790);
    }

    #[test]
    fn who_numbers_steps_or_was_written_to_be_recorded_needs_none() {
        let mut numbered = injected("injected");
        numbered.take(&spans(10));
        let mut one = Spans::default();
        let span = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(0), Nanos(1));
        one.push(&Span { step: Some(Step(3)), ..span });
        numbered.take(&one);
        assert!(numbered.steps().is_empty());
        let mut other = injected("another");
        other.take(&spans(10));
        assert!(other.steps().is_empty());
    }
}
