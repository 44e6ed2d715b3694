//! What a kernel is shown inside of: the modules around it, and the operator that launched it.

use std::collections::HashMap;

use super::labels::{Label, around};
use crate::{
    ids::{NameId, Step},
    names::Names,
    origin::Origin,
    tables::Span,
    vocabulary::Phase,
};

/// More than this are not shown around one kernel.
const MOST: usize = 24;

/// What is around the kernels of a rank.
#[derive(Default)]
pub(super) struct Parents {
    of: HashMap<NameId, Vec<Label>>,
    /// What a text at a depth is called: those that say the same have one label.
    labels: HashMap<(u8, String), Label>,
}

/// What a slice is inside of.
#[derive(Clone, Copy, Default)]
pub(super) struct Inside<'a> {
    /// From the outermost.
    pub(super) around: &'a [Label],
    /// The step and the phase, with which what is around ends.
    pub(super) pass: (Option<Step>, Option<Phase>),
}

impl Parents {
    /// What a span is inside of.
    pub(super) fn of(&mut self, span: &Span, names: &Names) -> Inside<'_> {
        let pass = (span.step, span.phase);
        let Some(origin) = span.origin else { return Inside { around: &[], pass } };
        let around = self.of.entry(origin).or_insert_with(|| {
            let text = Origin::of(names.get(origin).unwrap_or_default());
            let label = |(depth, text): (u8, &str)| {
                *self.labels.entry((depth, text.to_owned())).or_insert(Label::Around(origin, depth))
            };
            (0..).zip(around(&text)).take(MOST).map(label).collect()
        });
        Inside { around, pass }
    }
}
