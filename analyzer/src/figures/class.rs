//! What an activity is, as far as time is concerned.

use stepscope_traces::{Family, KernelKind, SpanKind};

use crate::stored::one_of;

/// What an activity is, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A compute kernel.
    Compute,
    /// A collective, a send or a receive.
    Communication,
    /// A copy or a fill.
    Copy,
}

one_of!(Class: Class::ALL);

impl Class {
    /// All of them.
    pub(crate) const ALL: [Class; 3] = [Class::Compute, Class::Communication, Class::Copy];

    /// What a span is; annotations and launches are no activity.
    pub(crate) fn of(kind: SpanKind) -> Option<Class> {
        if kind == SpanKind::Kernel {
            Some(Class::Compute)
        } else if kind.is_communication() {
            Some(Class::Communication)
        } else if kind.is_copy() {
            Some(Class::Copy)
        } else {
            None
        }
    }

    /// What kind of work an activity of this class and name is.
    pub(crate) fn family(self, name: &str) -> Family {
        match self {
            Class::Communication => Family::Communication,
            Class::Copy => Family::Copy,
            Class::Compute => KernelKind::of(name).family,
        }
    }

    /// The same of one that may run in the optimizer's phase. What goes element by element there is the optimizer's: many are
    /// made of nothing else.
    pub(crate) fn family_in(self, name: &str, of_optimizer: bool) -> Family {
        use Family::{Elementwise, Embedding, Other, Quantization, Reduction, Sort};
        let family = self.family(name);
        let is_plain = matches!(family, Elementwise | Reduction | Quantization | Embedding | Sort | Other);
        if of_optimizer && is_plain { Family::Optimizer } else { family }
    }
}
