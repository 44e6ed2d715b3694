//! What a range that a program named says of the work in it.

use crate::{
    ids::{MicroBatch, Stage, Step},
    tables::Span,
    vocabulary::{Phase, SpanKind},
};

/// Where in the training something is, as far as annotations tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrainingContext {
    pub(crate) step: Option<Step>,
    pub(crate) phase: Option<Phase>,
    pub(crate) micro_batch: Option<MicroBatch>,
    pub(crate) stage: Option<Stage>,
}

impl TrainingContext {
    /// Nothing is known.
    pub(crate) const NOWHERE: TrainingContext =
        TrainingContext { step: None, phase: None, micro_batch: None, stage: None };

    /// What is said here, and by `outer` where nothing is.
    pub(crate) fn within(self, outer: TrainingContext) -> TrainingContext {
        TrainingContext {
            step: self.step.or(outer.step),
            phase: self.phase.or(outer.phase),
            micro_batch: self.micro_batch.or(outer.micro_batch),
            stage: self.stage.or(outer.stage),
        }
    }

    /// Says of a span that it is here.
    pub(crate) fn put(self, span: &mut Span) {
        let TrainingContext { step, phase, micro_batch, stage } = self;
        (span.step, span.phase, span.micro_batch, span.stage) = (step, phase, micro_batch, stage);
    }

    /// The place that the name of an annotation tells of.
    pub(crate) fn named(name: &str) -> TrainingContext {
        if let Some(action) = name.strip_prefix("PP:") {
            return TrainingContext::of_action(action).unwrap_or_default();
        }
        TrainingContext::of_framework(name).unwrap_or_else(|| TrainingContext::of_words(name))
    }

    /// The place that a name tells of, if PyTorch itself gave it. Those of 2021 stand among operators.
    pub(crate) fn of_framework(name: &str) -> Option<TrainingContext> {
        if let Some(step) = name.strip_prefix("ProfilerStep#") {
            return Some(TrainingContext { step: step.parse().ok().map(Step), ..TrainingContext::default() });
        }
        let phase = if name.starts_with("Optimizer.") {
            Phase::Optimizer
        } else if name.starts_with("enumerate(DataLoader)") {
            Phase::Data
        } else if name.ends_with("DataParallel.forward") {
            // What its wrappers call the forward pass of a model: `DistributedDataParallel.forward`.
            Phase::Forward
        } else {
            return None;
        };
        Some(TrainingContext { phase: Some(phase), ..TrainingContext::default() })
    }

    /// A pipeline's action in PyTorch's words: stage, what, micro-batch, as in `2F0`.
    fn of_action(action: &str) -> Option<TrainingContext> {
        let (stage, rest) = action.split_at(action.find(|letter: char| !letter.is_ascii_digit())?);
        let (what, micro_batch) = rest.split_at(rest.find(|letter: char| letter.is_ascii_digit())?);
        let phase = match what {
            "F" => Phase::Forward,
            // Whole, or of the inputs or the weights alone.
            "B" | "I" | "W" => Phase::Backward,
            _ => return None,
        };
        Some(TrainingContext {
            step: None,
            phase: Some(phase),
            micro_batch: micro_batch.parse().ok().map(MicroBatch),
            stage: stage.parse().ok().map(Stage),
        })
    }

    /// One word for a phase, maybe with a number, and nothing else: `## forward ##`, `Backward 3`, `optimizer_step`. A
    /// number counts micro-batches, as it does for PyTorch's pipelines.
    fn of_words(name: &str) -> TrainingContext {
        let (mut phase, mut micro_batch) = (None, None);
        for word in name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
            let said = match word.to_ascii_lowercase().as_str() {
                "forward" | "fwd" => Phase::Forward,
                "backward" | "bwd" => Phase::Backward,
                "optimizer" | "optim" => Phase::Optimizer,
                "pass" | "step" | "compute" => continue,
                word => match word.parse() {
                    Ok(number) if micro_batch.is_none() => {
                        micro_batch = Some(MicroBatch(number));
                        continue;
                    }
                    _ => return TrainingContext::default(),
                },
            };
            if phase.replace(said).is_some() {
                return TrainingContext::default();
            }
        }
        match phase {
            None => TrainingContext::default(),
            Some(Phase::Optimizer) => TrainingContext { phase, ..TrainingContext::default() },
            Some(_) => TrainingContext { phase, micro_batch, ..TrainingContext::default() },
        }
    }

    /// What kind of annotation says this.
    pub(crate) fn kind(self) -> SpanKind {
        match self {
            TrainingContext { step: Some(_), .. } => SpanKind::Step,
            TrainingContext { phase: Some(_), .. } => SpanKind::Phase,
            _ => SpanKind::Range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_use() {
        let place = |step: Option<i32>, phase, micro_batch: Option<i32>, stage: Option<i16>| TrainingContext {
            step: step.map(Step),
            phase,
            micro_batch: micro_batch.map(MicroBatch),
            stage: stage.map(Stage),
        };
        let (forward, backward) = (Some(Phase::Forward), Some(Phase::Backward));
        for (name, expected) in [
            ("ProfilerStep#12", place(Some(12), None, None, None)),
            ("ProfilerStep#x", TrainingContext::default()),
            ("ProfilerStep#99999999999", TrainingContext::default()),
            ("## forward ##", place(None, forward, None, None)),
            ("Forward 3", place(None, forward, Some(3), None)),
            ("Backward 11", place(None, backward, Some(11), None)),
            ("backward_pass", place(None, backward, None, None)),
            ("forward-compute", place(None, forward, None, None)),
            ("DistributedDataParallel.forward", place(None, forward, None, None)),
            ("FullyShardedDataParallel.forward", place(None, forward, None, None)),
            ("Optimizer.step#AdamW.step", place(None, Some(Phase::Optimizer), None, None)),
            ("Optimizer.zero_grad#AdamW.zero_grad", place(None, Some(Phase::Optimizer), None, None)),
            ("optimizer_step", place(None, Some(Phase::Optimizer), None, None)),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", place(None, Some(Phase::Data), None, None)),
            ("PP:2F0", place(None, forward, Some(0), Some(2))),
            ("PP:0B7", place(None, backward, Some(7), Some(0))),
            ("PP:1W3", place(None, backward, Some(3), Some(1))),
            ("PP:1SEND_F3", TrainingContext::default()),
            ("PP:", TrainingContext::default()),
            ("PP:7", TrainingContext::default()),
            ("forward backward", TrainingContext::default()),
            ("forward 1 2", TrainingContext::default()),
            ("forward hook", TrainingContext::default()),
            ("nccl:all_reduce", TrainingContext::default()),
            ("", TrainingContext::default()),
            ("12", TrainingContext::default()),
        ] {
            assert_eq!(TrainingContext::named(name), expected, "{name}");
        }
    }
}
