//! Steps of a program that was recorded as it is and numbers none: by what repeats in the stream it computes most on.
//!
//! So it is where what PyTorch says of steps broke off while the program went on: all that came after would be one step, in
//! one phase. There steps are inferred anew if more of them repeat than were numbered, and phases with them. And so it is in a
//! program that uses no optimizer of PyTorch's, where its first step would never end: phases are right there, and each step has
//! a backward pass.

mod passes;
mod repetition;

use std::collections::{BTreeSet, HashMap};

use crate::{
    ids::{NameId, Nanos, Step, Stream},
    names::Names,
    notes::{CollectorSource, TorchMemory},
    rank_info::RankInfo,
    tables::Spans,
    vocabulary::{Phase, SpanKind},
};
use passes::{InferredPasses, pass_named};
use repetition::repeated;

/// When each inferred step of a rank begins, and the last one ends, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct InferredSteps {
    borders: Vec<Nanos>,
    /// Whether they take the place of steps that were recorded.
    replace: bool,
    /// Where what was recorded of steps and phases broke off: what takes its place.
    instead: Option<InferredPasses>,
}

impl InferredSteps {
    /// Gives every activity that has no step the one it began in. Where recorded steps are wrong, every activity.
    pub(crate) fn number(&self, spans: &mut Spans) {
        for row in 0..spans.len() {
            let kind = spans.kind.get(row);
            if self.replace {
                spans.step.clear(row);
            }
            if let Some(passes) = &self.instead {
                spans.phase.clear(row);
                if matches!(kind, SpanKind::Step | SpanKind::Phase) {
                    // What broke off is a range like any other.
                    spans.kind.set(row, SpanKind::Range);
                } else if let Some(phase) = passes.at(spans.start_ns.get(row)) {
                    spans.phase.set(row, phase);
                }
            }
            if kind.is_annotation() {
                continue;
            }
            let begun = self.borders.partition_point(|border| *border <= spans.start_ns.get(row));
            if (1..self.borders.len()).contains(&begun) && spans.step.get(row).is_none() {
                spans.step.set(row, Step(begun as i32 - 1));
            }
        }
    }
}

/// The kernels of a rank that says nothing of its steps, or stopped saying it, by stream.
pub(crate) struct UnnumberedKernels {
    /// Whether what was recorded of steps may have broken off.
    broke_off: bool,
    /// The latest moment of which a step or a phase was said.
    said_until: Nanos,
    /// Whoever numbers two steps, or one to its end, numbers those that matter, unless that broke off.
    numbered: BTreeSet<Step>,
    one_ended: bool,
    streams: HashMap<Option<Stream>, Vec<Ran>>,
    /// The passes that names tell of.
    told: HashMap<NameId, Phase>,
    /// When messages began.
    messages: Vec<Nanos>,
}

/// A kernel that ran.
#[derive(Clone, Copy)]
struct Ran {
    start: Nanos,
    duration: Nanos,
    name: NameId,
    is_backward: bool,
}

impl UnnumberedKernels {
    /// Nothing yet, of a rank whose steps may be inferred: a program that was written to be recorded says of its steps
    /// itself.
    pub(crate) fn of(info: &RankInfo) -> Option<UnnumberedKernels> {
        let state = info.collector.torch_memory.as_ref().map(|notes| &notes.state);
        (info.collector.source == Some(CollectorSource::Injected)).then(|| UnnumberedKernels {
            broke_off: matches!(state, Some(TorchMemory::InPart { .. })),
            said_until: Nanos(i64::MIN),
            numbered: BTreeSet::new(),
            one_ended: false,
            streams: HashMap::new(),
            told: HashMap::new(),
            messages: Vec::new(),
        })
    }

    pub(crate) fn take(&mut self, names: &Names, spans: &Spans) {
        if self.needs_none() {
            return;
        }
        for row in 0..spans.len() {
            let (kind, start) = (spans.kind.get(row), spans.start_ns.get(row));
            if matches!(kind, SpanKind::Send | SpanKind::Receive | SpanKind::Communication) {
                self.messages.push(start);
            }
            self.one_ended |= kind == SpanKind::Step;
            if matches!(kind, SpanKind::Step | SpanKind::Phase) {
                self.said_until = self.said_until.max(start + spans.duration_ns.get(row));
            }
            if kind == SpanKind::Kernel {
                self.numbered.extend(spans.step.get(row));
            }
            if self.needs_none() {
                (self.streams, self.messages) = (HashMap::new(), Vec::new());
                return;
            }
            if kind != SpanKind::Kernel {
                continue;
            }
            let ran = Ran {
                start,
                duration: spans.duration_ns.get(row).max(Nanos(0)),
                name: spans.name.get(row),
                is_backward: spans.phase.get(row) == Some(Phase::Backward),
            };
            self.streams.entry(spans.stream.get(row)).or_default().push(ran);
        }
        if self.broke_off && self.told.is_empty() {
            // Names are there before spans are.
            self.told.extend(names.iter().filter_map(|(id, name)| Some((id, pass_named(name)?))));
        }
    }

    fn needs_none(&self) -> bool {
        !self.broke_off && (self.one_ended && !self.numbered.is_empty() || self.numbered.len() > 1)
    }

    /// The steps, if something repeats.
    pub(crate) fn steps(mut self) -> Option<InferredSteps> {
        let total = |kernels: &Vec<Ran>| kernels.iter().map(|ran| i128::from(ran.duration.0)).sum::<i128>();
        let mut kernels = self.streams.into_values().max_by_key(total)?;
        kernels.sort_by_key(|ran| ran.start);
        let stream: Vec<(NameId, Nanos)> = kernels.iter().map(|ran| (ran.name, ran.duration)).collect();
        let found = repeated(&stream).filter(|found| found.starts.len() > self.numbered.len())?;
        // What was said of most kernels is right, whatever became of memory.
        if self.broke_off && self.said_until > kernels[kernels.len() / 2].start {
            return None;
        }
        // Layers repeat too, in a first step that was cut off.
        let backward = kernels.chunk_by(|one, next| one.is_backward == next.is_backward);
        let backward = backward.filter(|chunk| chunk[0].is_backward).count();
        if !self.broke_off && !self.numbered.is_empty() && backward < found.starts.len() {
            return None;
        }
        let last = kernels[..found.end].last()?;
        self.messages.sort_unstable();
        // A stage that waits for its first micro-batch has begun.
        let begin = |place: &usize| {
            let before = place.checked_sub(1).map_or(Nanos(i64::MIN), |before| kernels[before].start);
            let message = self.messages.get(self.messages.partition_point(|message| *message <= before));
            message.copied().map_or(kernels[*place].start, |message| message.min(kernels[*place].start))
        };
        let begins: Vec<Nanos> = found.starts.iter().map(begin).collect();
        let instead = self.broke_off.then(|| {
            let told = kernels.iter().filter_map(|ran| Some((ran.start, *self.told.get(&ran.name)?)));
            InferredPasses::of(&told.collect::<Vec<_>>(), &self.messages, &begins, kernels[0].start)
        });
        let borders = begins.into_iter().chain([last.start + last.duration]).collect();
        Some(InferredSteps { borders, replace: !self.numbered.is_empty(), instead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Rank, names::FIRST_NAME, notes::TorchNotes, tables::Span};

    /// A rank of a program that was recorded as it is.
    fn injected() -> RankInfo {
        let mut info = RankInfo::of_this_process(Rank(0));
        info.collector.source = Some(CollectorSource::Injected);
        info
    }

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
        let (mut kernels, mut spans) = (UnnumberedKernels::of(&injected()).unwrap(), spans(10));
        kernels.take(&Names::default(), &spans);
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
        let mut numbered = UnnumberedKernels::of(&injected()).unwrap();
        numbered.take(&Names::default(), &spans(10));
        let mut one = Spans::default();
        let span = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(0), Nanos(1));
        one.push(&Span { step: Some(Step(3)), ..span });
        numbered.take(&Names::default(), &one);
        assert_eq!(numbered.steps(), None);
        assert!(UnnumberedKernels::of(&RankInfo::of_this_process(Rank(0))).is_none());
    }

    #[test]
    fn a_first_step_that_never_ends_is_many_if_each_has_a_backward_pass() {
        let of = |phase: fn(usize) -> Phase| {
            let mut told = Spans::default();
            for (place, span) in spans(10).rows().enumerate() {
                told.push(&Span { step: Some(Step(0)), phase: Some(phase(place % 9)), ..span });
            }
            let mut kernels = UnnumberedKernels::of(&injected()).unwrap();
            kernels.take(&Names::default(), &told);
            kernels.steps().map(|steps| {
                steps.number(&mut told);
                told
            })
        };
        let told = of(|place| if place < 4 { Phase::Forward } else { Phase::Backward }).unwrap();
        assert!(
            told.rows().all(|span| span.step == Some(Step((span.start_ns.0 / 1000) as i32)) && span.phase.is_some())
        );
        assert!(of(|_| Phase::Forward).is_none(), "layers of a step that was cut off");
    }

    #[test]
    fn where_steps_broke_off_they_are_inferred_anew_and_so_are_phases() {
        let mut info = injected();
        let why = "AttributeError".to_owned();
        info.collector.torch_memory = Some(TorchNotes::of_state(TorchMemory::InPart { why }));
        let mut names = Names::default();
        let ids = (0..).map(|kernel| NameId(FIRST_NAME.0 + kernel));
        names.extend(ids.zip(["gemm", "softmax_forward", "gemm", "softmax_backward", "gemm", "gemm", "adam", "copy"]));
        let mut broken = Spans::default();
        let first = Span::new(SpanKind::Step, FIRST_NAME, Nanos(0), Nanos(1000));
        broken.push(&Span { step: Some(Step(0)), ..first });
        let after = |span: Span| Span { step: Some(Step(0)), phase: Some(Phase::Optimizer), ..span };
        spans(10).rows().for_each(|span| broken.push(&after(span)));
        let mut kernels = UnnumberedKernels::of(&info).unwrap();
        kernels.take(&names, &broken);
        kernels.steps().unwrap().number(&mut broken);
        assert_eq!((broken.kind.get(0), broken.step.get(0)), (SpanKind::Range, None));
        let on_stream: Vec<Span> = broken.rows().skip(1).filter(|span| span.stream == Some(Stream(7))).collect();
        assert!(on_stream.iter().all(|span| span.step == Some(Step((span.start_ns.0 / 1000) as i32))));
        let phases: Vec<_> = on_stream[..8].iter().map(|span| span.phase.unwrap()).collect();
        use Phase::{Backward, Forward, Optimizer};
        assert_eq!(phases, [Forward, Forward, Forward, Backward, Optimizer, Optimizer, Optimizer, Optimizer]);
        // What goes on being said did not break off.
        let mut said = UnnumberedKernels::of(&info).unwrap();
        let mut phases = spans(10);
        phases.push(&Span {
            phase: Some(Phase::Forward),
            ..Span::new(SpanKind::Phase, FIRST_NAME, Nanos(8000), Nanos(5))
        });
        said.take(&names, &phases);
        assert_eq!(said.steps(), None);
        // As many as were numbered are those that were.
        let mut numbered = Spans::default();
        let step = |span: &Span| Some(Step((span.start_ns.0 / 1000) as i32));
        spans(10).rows().for_each(|span| numbered.push(&Span { step: step(&span), ..span }));
        let mut kernels = UnnumberedKernels::of(&info).unwrap();
        kernels.take(&names, &numbered);
        assert_eq!(kernels.steps(), None);
    }
}
