//! What events and their arguments are called: texts stand in a trace once for each sequence, and have numbers there.

use std::collections::HashMap;

use super::{
    schema::{DebugAnnotation, Interned, InternedData, Value},
    text::clean,
};
use crate::{
    ids::NameId,
    names::Names,
    vocabulary::{Phase, SpanKind},
};

/// The name of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Label {
    /// As it was recorded.
    Recorded(NameId),
    /// An annotation and its number.
    Numbered(SpanKind, i32),
    /// A phase.
    Of(Phase),
    /// A kind of span.
    Kind(SpanKind),
    /// One of ours.
    Fixed(&'static str),
}

impl Label {
    fn text(self, names: &Names) -> String {
        match self {
            Label::Recorded(name) => {
                let text = names.get(name).filter(|text| !text.is_empty());
                clean(text.unwrap_or("unnamed")).into_owned()
            }
            Label::Numbered(SpanKind::MicroBatch, number) => format!("micro-batch {number}"),
            Label::Numbered(kind, number) => format!("{kind} {number}"),
            Label::Of(phase) => phase.word().into(),
            Label::Kind(kind) => kind.word().into(),
            Label::Fixed(text) => text.into(),
        }
    }
}

/// The numbers of a sequence's event names.
#[derive(Default)]
pub(super) struct Labels {
    numbers: HashMap<Label, u64>,
    /// What was asked for last: neighbours are often alike.
    last: Option<(Label, u64)>,
}

impl Labels {
    /// The number of a label, and what the sequence has to be told first where it is new.
    pub(super) fn number(&mut self, label: Label, names: &Names) -> (u64, Option<InternedData>) {
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == label) {
            return (number, None);
        }
        let next = self.numbers.len() as u64 + 1;
        let number = *self.numbers.entry(label).or_insert(next);
        self.last = Some((label, number));
        let is_new = number == next;
        let event_names = || vec![Interned { iid: Some(number), text: Some(label.text(names)) }];
        (number, is_new.then(|| InternedData { event_names: event_names(), ..InternedData::default() }))
    }
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What an argument says. Its number is the same in every sequence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Argument {
            $($(#[$doc])* $name,)*
        }

        impl Argument {
            const ALL: &[(Argument, &str)] = &[$((Argument::$name, $text)),*];
        }
    };
}

arguments! {
    /// The step it belongs to.
    Step = "step",
    /// The micro-batch it belongs to.
    MicroBatch = "micro_batch",
    /// The phase it belongs to.
    Phase = "phase",
    /// The layer it belongs to.
    Layer = "layer",
    /// What it moved; of a collective, the message's.
    Bytes = "bytes",
    /// What it computed.
    Flops = "flops",
    /// How fast it did.
    TeraFlops = "TFLOP/s",
    /// How fast it moved its bytes.
    Bandwidth = "GB/s",
    /// Which operation a collective is.
    Operation = "operation",
    /// The process group.
    Group = "group",
    /// The number of a collective in its group.
    Sequence = "sequence",
    /// The least time over its ranks.
    Own = "own_ns",
    /// The rest of its time.
    Waiting = "waiting_ns",
    /// Bytes over its own time.
    AlgorithmBandwidth = "algorithm GB/s",
    /// The same, as what crosses a rank's link.
    BusBandwidth = "bus GB/s",
    /// What ties a launch to what it launched.
    Correlation = "correlation",
}

impl Argument {
    /// The argument with a number that counts something.
    pub(super) fn counted(self, value: u64) -> DebugAnnotation {
        self.with(Value::Unsigned(value))
    }

    /// The argument with a number that may be anything.
    pub(super) fn numbered(self, value: impl Into<i64>) -> DebugAnnotation {
        self.with(Value::Signed(value.into()))
    }

    /// The argument with a rate, to four digits.
    pub(super) fn rate(self, value: f64) -> DebugAnnotation {
        self.with(Value::Double(value))
    }

    /// The argument with a phase.
    pub(super) fn phase(phase: Phase) -> DebugAnnotation {
        Argument::Phase.with(Value::TextIid(phase as u64 + 1))
    }

    /// The argument with an operation.
    pub(super) fn operation(kind: SpanKind) -> DebugAnnotation {
        Argument::Operation.with(Value::TextIid(Phase::ALL.len() as u64 + kind as u64 + 1))
    }

    fn with(self, value: Value) -> DebugAnnotation {
        DebugAnnotation { name_iid: Some(self as u64 + 1), name: None, value: Some(value) }
    }
}

/// The category that a kind of span has.
pub(super) fn category(kind: SpanKind) -> u64 {
    kind as u64 + 1
}

/// What every sequence is told first: arguments, categories, and texts of arguments have the same numbers in all.
pub(super) fn vocabulary() -> InternedData {
    fn numbered<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Interned> {
        (1..).zip(texts).map(|(number, text)| Interned { iid: Some(number), text: Some(text.into()) }).collect()
    }
    let kinds = || SpanKind::ALL.iter().map(|kind| kind.word());
    InternedData {
        event_categories: numbered(kinds()),
        event_names: Vec::new(),
        debug_annotation_names: numbered(Argument::ALL.iter().map(|(_, text)| *text)),
        debug_annotation_string_values: numbered(Phase::ALL.iter().map(|phase| phase.word()).chain(kinds())),
    }
}
