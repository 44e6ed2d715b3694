//! What events and their arguments are called: texts stand in a trace once for each sequence, and have numbers there.

use std::collections::HashMap;

use super::{
    schema::{Interned, InternedData},
    text::clean,
};
use crate::{
    ids::{Layer, NameId},
    names::{FIRST_NAME, Names},
    origin::Origin,
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
    /// A module around whoever an origin says, by its depth; beyond the modules, the operator.
    Around(NameId, u8),
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
            Label::Around(origin, depth) => {
                let origin = Origin::of(names.get(origin).unwrap_or_default());
                clean(around(&origin).nth(depth.into()).unwrap_or("unnamed")).into_owned()
            }
            Label::Of(phase) => phase.word().into(),
            Label::Kind(kind) => kind.word().into(),
            Label::Fixed(text) => text.into(),
        }
    }
}

/// What is around whatever was launched, from the outermost: modules, and the operator.
pub(super) fn around<'a>(origin: &Origin<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let modules = origin.module.into_iter().flat_map(|module| module.split('/')).filter(|module| !module.is_empty());
    modules.chain(origin.operator)
}

/// The category of an event: what kind of span it is, and where it belongs if no argument says so. Categories are texts
/// that stand in a sequence once, so that a place takes a byte where arguments take a dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tags {
    pub(super) kind: SpanKind,
    pub(super) phase: Option<Phase>,
    pub(super) layer: Option<Layer>,
}

impl Tags {
    /// The kind alone.
    pub(super) fn of(kind: SpanKind) -> Tags {
        Tags { kind, phase: None, layer: None }
    }

    fn text(self) -> String {
        let phase = self.phase.map(|phase| format!(",{}", phase.word())).unwrap_or_default();
        let layer = self.layer.map(|layer| format!(",layer {layer}")).unwrap_or_default();
        format!("{}{phase}{layer}", self.kind.word())
    }
}

/// The numbers of a sequence's event names, and of its categories.
#[derive(Default)]
pub(super) struct Labels {
    /// Of recorded names, by their place: most of them are close together.
    recorded: Vec<u64>,
    others: HashMap<Label, u64>,
    count: u64,
    tags: HashMap<Tags, u64>,
    /// What was asked for last: neighbors are often of one place.
    last_tags: Option<(Tags, u64)>,
    origins: HashMap<NameId, OriginTexts>,
    /// The texts of arguments, behind those that every sequence has.
    texts: HashMap<String, u64>,
}

/// What an origin says, by the numbers of its texts.
type OriginTexts = Vec<(Argument, u64)>;

impl Labels {
    /// Names beyond this many are looked up.
    const MOST_BY_PLACE: usize = 1 << 14;
    /// Of so many places a sequence may tell; a recording that has more is damaged.
    const MOST_TAGS: usize = 1 << 14;

    /// The number of a category, and what the sequence has to be told first where it is new.
    pub(super) fn category(&mut self, tags: Tags) -> (u64, Option<Interned>) {
        match self.last_tags {
            _ if tags == Tags::of(tags.kind) => return (category(tags.kind), None),
            Some((last, number)) if last == tags => return (number, None),
            _ => {}
        }
        let (next, is_known) = ((SpanKind::ALL.len() + self.tags.len() + 1) as u64, self.tags.contains_key(&tags));
        if !is_known && self.tags.len() >= Self::MOST_TAGS {
            return (category(tags.kind), None);
        }
        let number = *self.tags.entry(tags).or_insert(next);
        self.last_tags = Some((tags, number));
        (number, (!is_known).then(|| Interned { iid: Some(number), text: Some(tags.text()) }))
    }

    /// What an origin says, and what the sequence has to be told first where something of it is new.
    pub(super) fn origin(&mut self, origin: NameId, names: &Names) -> (&OriginTexts, Vec<Interned>) {
        let mut told = Vec::new();
        let known = self.origins.entry(origin).or_insert_with(|| {
            let Origin { operator, shapes, module, source } = Origin::of(names.get(origin).unwrap_or_default());
            let parts = [Argument::Operator, Argument::Shapes, Argument::Module, Argument::Source]
                .into_iter()
                .zip([operator, shapes, module, source]);
            let numbered = parts.filter_map(|(argument, text)| {
                let text = clean(text?).into_owned();
                let next = (Phase::ALL.len() + SpanKind::ALL.len() + self.texts.len() + 1) as u64;
                let number = *self.texts.entry(text.clone()).or_insert_with(|| {
                    told.push(Interned { iid: Some(next), text: Some(text) });
                    next
                });
                Some((argument, number))
            });
            numbered.collect()
        });
        (known, told)
    }

    /// The number of a label, and what the sequence has to be told first where it is new.
    pub(super) fn number(&mut self, label: Label, names: &Names) -> (u64, Option<Interned>) {
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
        (*number, Some(Interned { iid: Some(*number), text: Some(label.text(names)) }))
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
    /// The operator that launched it.
    Operator = "operator",
    /// What that was given.
    Shapes = "shapes",
    /// The module it belongs to.
    Module = "module",
    /// The line of the program.
    Source = "source",
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

/// The category that a kind of span has by itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_once_and_has_one_number() {
        let mut labels = Labels::default();
        let kernel = |phase, layer: Option<i32>| Tags { kind: SpanKind::Kernel, phase, layer: layer.map(Layer) };
        let (plain, told) = labels.category(Tags::of(SpanKind::Kernel));
        assert_eq!((plain, told), (category(SpanKind::Kernel), None), "every sequence knows the kinds");
        let (forward, told) = labels.category(kernel(Some(Phase::Forward), Some(3)));
        assert_eq!(told.unwrap().text.as_deref(), Some("kernel,forward,layer 3"));
        let (backward, told) = labels.category(kernel(Some(Phase::Backward), None));
        assert_eq!(told.unwrap().text.as_deref(), Some("kernel,backward"));
        assert!(forward != backward && forward > SpanKind::ALL.len() as u64);
        assert_eq!(labels.category(kernel(Some(Phase::Forward), Some(3))), (forward, None));
        for layer in 0..2 * Labels::MOST_TAGS as i32 {
            labels.category(kernel(None, Some(layer)));
        }
        assert_eq!(labels.tags.len(), Labels::MOST_TAGS, "what a damaged recording says is bounded");
        assert_eq!(labels.category(kernel(None, Some(-7))), (plain, None));
    }

    #[test]
    fn an_origin_is_told_once_and_in_its_parts() {
        let mut names = Names::default();
        let origins = [NameId(FIRST_NAME.0), NameId(FIRST_NAME.0 + 1)];
        names.extend(origins.into_iter().zip(["aten::mm\tbf16[8,4]\tGPT/Block", "aten::mm\tbf16[2,4]\tGPT/Block"]));
        let mut labels = Labels::default();
        let (first, told) = labels.origin(origins[0], &names);
        let first = first.clone();
        assert_eq!(
            told.iter().filter_map(|text| text.text.as_deref()).collect::<Vec<_>>(),
            ["aten::mm", "bf16[8,4]", "GPT/Block"]
        );
        assert!(first.iter().map(|(_, number)| Some(*number)).eq(told.iter().map(|text| text.iid)));
        let (second, told) = labels.origin(origins[1], &names);
        assert_eq!((second[0], second[2]), (first[0], first[2]));
        assert_eq!(told.len(), 1);
        assert_eq!(labels.origin(origins[0], &names), (&first, vec![]));
    }
}
