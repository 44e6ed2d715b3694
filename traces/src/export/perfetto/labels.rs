//! What events and their arguments are called: texts stand in a trace once for each sequence, and have numbers there.

use std::collections::HashMap;

use super::{
    schema::{Interned, InternedData},
    text::clean,
};
use crate::{
    ids::NameId,
    names::{FIRST_NAME, Names},
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
    /// Of recorded names, by their place: most of them are close together.
    recorded: Vec<u64>,
    others: HashMap<Label, u64>,
    count: u64,
}

impl Labels {
    /// Names beyond this many are looked up.
    const MOST_BY_PLACE: usize = 1 << 14;

    /// The number of a label, and what the sequence has to be told first where it is new.
    pub(super) fn number(&mut self, label: Label, names: &Names) -> (u64, Option<InternedData>) {
        let place = match label {
            Label::Recorded(name) => name.0.checked_sub(FIRST_NAME.0).map(|place| place as usize),
            _ => None,
        };
        let number = match place.filter(|place| *place < Self::MOST_BY_PLACE) {
            Some(place) => {
                if self.recorded.len() <= place {
                    self.recorded.resize(place + 1, 0);
                }
                &mut self.recorded[place]
            }
            None => self.others.entry(label).or_insert(0),
        };
        if *number > 0 {
            return (*number, None);
        }
        self.count += 1;
        *number = self.count;
        let event_names = vec![Interned { iid: Some(*number), text: Some(label.text(names)) }];
        (*number, Some(InternedData { event_names, ..InternedData::default() }))
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
    /// Its number.
    pub(super) fn number(self) -> u64 {
        self as u64 + 1
    }

    /// The number of a phase among the texts of arguments.
    pub(super) fn text_of_phase(phase: Phase) -> u64 {
        phase as u64 + 1
    }

    /// The number of a kind of span among them.
    pub(super) fn text_of_kind(kind: SpanKind) -> u64 {
        (Phase::ALL.len() + kind as usize + 1) as u64
    }
}

// A byte is enough for each.
const _: () = assert!(Argument::ALL.len() < 127);

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
