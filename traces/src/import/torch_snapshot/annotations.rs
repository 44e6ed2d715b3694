//! What the program named while the snapshot's history was recorded: steps of the profiler, calls of optimizers, others.

use std::collections::HashMap;

use super::{document::Annotation, frame::Pass};
use crate::{
    ids::Step,
    vocabulary::{Phase, SpanKind},
};

/// From the beginning of an annotation to its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stretch {
    /// In nanoseconds since 1970.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) name: String,
    /// The pass of the training that it is around.
    pub(super) pass: Option<Pass>,
    /// The step that it is.
    pub(super) step: Option<Step>,
}

impl Stretch {
    /// Pairs beginnings with ends: an end is that of the newest open beginning of its name. What did not end, and what
    /// did not begin, is left out. By time.
    pub(super) fn all(annotations: &[Annotation], device: u32, only_device: bool) -> Vec<Stretch> {
        let mut open: HashMap<&str, Vec<i64>> = HashMap::new();
        let mut stretches = Vec::new();
        for Annotation { begins, name, device: of, time_us } in annotations {
            if !only_device && of.is_some_and(|of| of != device) {
                continue;
            }
            let Some(time) = time_us.checked_mul(1000) else { continue };
            if *begins {
                open.entry(name).or_default().push(time);
            } else if let Some(from) = open.get_mut(name.as_str()).and_then(Vec::pop).filter(|from| *from <= time) {
                let (pass, step) = (pass(name), step(name));
                stretches.push(Stretch { from, to: time, name: name.clone(), pass, step });
            }
        }
        stretches.sort_by_key(|stretch| stretch.from);
        stretches
    }

    /// How many beginnings and ends are at no time that can be told, and so are left out.
    pub(super) fn timeless(annotations: &[Annotation]) -> u64 {
        annotations.iter().filter(|annotation| annotation.time_us.checked_mul(1000).is_none()).count() as u64
    }

    /// What kind of span it is.
    pub(super) fn kind(&self) -> SpanKind {
        match (self.step, self.pass) {
            (Some(_), _) => SpanKind::Step,
            (None, Some(_)) => SpanKind::Phase,
            (None, None) => SpanKind::Range,
        }
    }
}

/// The phase that a pass is.
pub(super) fn phase(pass: Pass) -> Phase {
    match pass {
        Pass::Forward => Phase::Forward,
        Pass::Backward => Phase::Backward,
        Pass::Optimizer => Phase::Optimizer,
    }
}

/// PyTorch names the calls of its optimizers and the forward pass of its wrappers.
fn pass(name: &str) -> Option<Pass> {
    if name.starts_with("Optimizer.") {
        Some(Pass::Optimizer)
    } else if matches!(name, "DistributedDataParallel.forward" | "FullyShardedDataParallel.forward") {
        Some(Pass::Forward)
    } else {
        None
    }
}

fn step(name: &str) -> Option<Step> {
    name.strip_prefix("ProfilerStep#")?.parse().ok().map(Step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_go_with_the_newest_beginning() {
        let mark = |begins, name: &str, time_us| Annotation { begins, name: name.into(), device: Some(1), time_us };
        let annotations = [
            mark(false, "lost", 0),
            mark(true, "ProfilerStep#7", 1),
            mark(true, "a", 2),
            mark(true, "a", 3),
            mark(false, "a", 4),
            mark(false, "ProfilerStep#7", 5),
            mark(true, "Optimizer.step#AdamW.step", 6),
            mark(false, "Optimizer.step#AdamW.step", 6),
            mark(true, "open", 7),
        ];
        let stretches = Stretch::all(&annotations, 1, false);
        let told: Vec<_> = stretches.iter().map(|one| (one.from, one.to, one.kind(), one.step)).collect();
        let expected = [
            (1000, 5000, SpanKind::Step, Some(Step(7))),
            (3000, 4000, SpanKind::Range, None),
            (6000, 6000, SpanKind::Phase, None),
        ];
        assert_eq!(told, expected);
        assert_eq!(Stretch::all(&annotations, 0, false), []);
        assert_eq!(Stretch::all(&annotations, 0, true).len(), 3);
        assert_eq!(Stretch::timeless(&annotations), 0);
        let late = [mark(true, "late", i64::MAX / 2), mark(false, "late", i64::MAX)];
        assert_eq!((Stretch::all(&late, 1, true), Stretch::timeless(&late)), (vec![], 2));
    }
}
