//! Names, interned while the program runs, within bounds.

use std::collections::HashMap;

use stepscope_traces::{Counter, CounterId, FIRST_NAME, NameId, Phase};

/// How many names a rank keeps, and how much text.
const MOST_NAMES: u32 = 1 << 16;
const MOST_TEXT: usize = 8 << 20;
/// What stands for the names there was no room for.
const OTHER: &str = "(other)";
/// Counters of this prefix are the recorder's own.
const OWN_COUNTERS: &str = "recorder.";

/// Names every recording has, with ids that need no looking up.
pub(crate) enum KnownName {
    Step,
    MicroBatch,
    Layer,
    Phase(Phase),
}

impl KnownName {
    /// After [`OTHER`], in this order.
    fn texts() -> impl Iterator<Item = &'static str> {
        ["step", "micro-batch", "layer"].into_iter().chain(Phase::ALL.iter().map(|phase| phase.word()))
    }

    pub(crate) fn id(self) -> NameId {
        let place = match self {
            KnownName::Step => 0,
            KnownName::MicroBatch => 1,
            KnownName::Layer => 2,
            KnownName::Phase(phase) => 3 + phase as u32,
        };
        NameId(FIRST_NAME.0 + 1 + place)
    }
}

/// The names of one rank, and those the writer does not have yet.
pub(crate) struct NameBook {
    names: HashMap<String, NameId>,
    counters: HashMap<String, CounterId>,
    text: usize,
    fresh: Vec<(NameId, String)>,
    pub(crate) dropped: u64,
}

impl NameBook {
    pub(crate) fn new() -> NameBook {
        let counters = Counter::ALL.iter().map(|counter| (counter.word().to_owned(), counter.id())).collect();
        let mut book = NameBook { names: HashMap::new(), counters, text: 0, fresh: Vec::new(), dropped: 0 };
        book.name(OTHER);
        KnownName::texts().for_each(|text| {
            book.name(text);
        });
        book
    }

    pub(crate) fn name(&mut self, text: &str) -> NameId {
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        if self.names.len() as u32 >= MOST_NAMES || !self.fits(text) {
            self.dropped += 1;
            return FIRST_NAME;
        }
        let id = NameId(FIRST_NAME.0 + self.names.len() as u32);
        self.names.insert(text.to_owned(), id);
        self.fresh.push((id, text.to_owned()));
        id
    }

    /// `None` when there are too many counters, or it is the recorder's own.
    pub(crate) fn counter(&mut self, text: &str) -> Option<CounterId> {
        if text.starts_with(OWN_COUNTERS) {
            return None;
        }
        if let Some(id) = self.counters.get(text) {
            return Some(*id);
        }
        let id = self.counters.len() as u32;
        if id >= FIRST_NAME.0 || !self.fits(text) {
            self.dropped += 1;
            return None;
        }
        self.counters.insert(text.to_owned(), CounterId(id as u16));
        self.fresh.push((NameId(id), text.to_owned()));
        Some(CounterId(id as u16))
    }

    fn fits(&mut self, text: &str) -> bool {
        let fits = self.text + text.len() <= MOST_TEXT;
        if fits {
            self.text += text.len();
        }
        fits
    }

    /// The names the writer does not have yet.
    pub(crate) fn take_fresh(&mut self) -> Vec<(NameId, String)> {
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_id() {
        let mut book = NameBook::new();
        let (a, b) = (book.name("a"), book.name("b"));
        assert_ne!(a, b);
        assert_eq!(book.name("a"), a);
        let fresh: Vec<String> = book.take_fresh().into_iter().map(|(_, text)| text).collect();
        assert_eq!((fresh[0].as_str(), &fresh[fresh.len() - 2..]), (OTHER, &["a".to_owned(), "b".to_owned()][..]));
        assert!(book.take_fresh().is_empty());
    }

    #[test]
    fn known_names_have_the_ids_they_say() {
        let mut book = NameBook::new();
        for (name, text) in [
            (KnownName::Step, "step"),
            (KnownName::MicroBatch, "micro-batch"),
            (KnownName::Layer, "layer"),
            (KnownName::Phase(Phase::Forward), "forward"),
            (KnownName::Phase(Phase::Checkpoint), "checkpoint"),
        ] {
            assert_eq!(name.id(), book.name(text), "{text}");
        }
    }

    #[test]
    fn names_without_end_take_memory_with_an_end() {
        let mut book = NameBook::new();
        for index in 0..MOST_NAMES + 10 {
            book.name(&format!("step {index}"));
        }
        assert_eq!(book.names.len() as u32, MOST_NAMES);
        let known = 1 + KnownName::texts().count() as u64;
        assert_eq!(book.dropped, 10 + known, "some of the names that fit are known ones");
        assert_eq!(book.name("yet another"), book.name(OTHER));
        assert!(book.text <= MOST_TEXT);
    }

    #[test]
    fn counters_have_ids_below_the_names() {
        let mut book = NameBook::new();
        assert_eq!(book.counter("loss"), Some(Counter::Loss.id()));
        assert_eq!(book.counter(Counter::DroppedEvents.word()), None, "nobody else says what was dropped");
        let ids: Vec<_> = (0..FIRST_NAME.0).map(|index| book.counter(&format!("counter {index}"))).collect();
        assert!(ids.iter().flatten().all(|id| u32::from(id.0) < FIRST_NAME.0));
        assert_eq!(ids.last(), Some(&None));
    }
}
