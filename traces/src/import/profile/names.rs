//! Names that a trace repeats, kept once each and within bounds.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    ids::NameId,
    names::{FIRST_NAME, Names},
    vocabulary::Counter,
};

/// How many names are kept. Traces have thousands.
const MOST_NAMES: usize = 1 << 18;
/// How long they may be together.
const MOST_TEXT: usize = 64 << 20;

/// What all names are called for which there is no room.
const OTHER: &str = "(one of too many names)";

/// The names of a trace.
#[derive(Debug, Default)]
pub(crate) struct NameBook {
    ids: HashMap<Arc<str>, NameId>,
    texts: Vec<Arc<str>>,
    text: usize,
    told: usize,
    /// How often there was no room for a name.
    pub(crate) dropped: u64,
}

/// Some of the names of a trace, by their ids.
#[derive(Debug)]
pub(crate) struct ChosenNames(Vec<bool>);

impl ChosenNames {
    /// Whether a name is one of them.
    pub(crate) fn contains(&self, id: NameId) -> bool {
        self.0.get((id.0 - FIRST_NAME.0) as usize).is_some_and(|is_chosen| *is_chosen)
    }
}

impl NameBook {
    /// The id of a name.
    pub(crate) fn id(&mut self, name: &str) -> NameId {
        match self.ids.get(name) {
            Some(id) => *id,
            None if self.ids.len() >= MOST_NAMES || self.text + name.len() > MOST_TEXT => {
                self.dropped += 1;
                self.ids.get(OTHER).copied().unwrap_or_else(|| self.add(OTHER))
            }
            None => self.add(name),
        }
    }

    /// The text of a name.
    pub(crate) fn text(&self, id: NameId) -> &str {
        self.texts.get((id.0 - FIRST_NAME.0) as usize).map_or("", |text| text)
    }

    /// Those of which something is true.
    pub(crate) fn chosen(&self, is_chosen: impl Fn(&str) -> bool) -> ChosenNames {
        ChosenNames(self.texts.iter().map(|text| is_chosen(text)).collect())
    }

    /// What was added since the last time.
    pub(crate) fn added(&mut self) -> Vec<Arc<str>> {
        let added = self.texts[self.told..].to_vec();
        self.told = self.texts.len();
        added
    }

    fn add(&mut self, name: &str) -> NameId {
        let id = NameId(FIRST_NAME.0 + self.ids.len() as u32);
        self.text += name.len();
        let name: Arc<str> = name.into();
        self.texts.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    /// The names as a reader has them.
    pub(crate) fn into_names(self) -> Names {
        let counters = Counter::ALL.iter().map(|counter| (NameId(u32::from(counter.id().0)), counter.word()));
        let mut names = Names::default();
        names.extend(counters);
        names.extend(self.ids.iter().map(|(name, id)| (*id, name.as_ref())));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let mut book = NameBook::default();
        let ids = ["a", "b", "a", "\u{1b}[31m"].map(|name| book.id(name));
        assert_eq!(ids[0], ids[2]);
        assert_eq!(ids.map(|id| book.chosen(|name| name == "b").contains(id)), [false, true, false, false]);
        let names = book.into_names();
        assert_eq!(ids.map(|id| names.get(id).unwrap().to_owned()), ["a", "b", "a", "\u{1b}[31m"]);
        assert_eq!(names.counter(Counter::Loss.id()), Some("loss"));
    }

    #[test]
    fn names_without_end_are_dropped_and_counted() {
        let mut book = NameBook::default();
        let long = "x".repeat(MOST_TEXT / 4);
        let ids: Vec<NameId> = (0..6).map(|index| book.id(&format!("{index}{long}"))).collect();
        assert!(ids[3] == ids[4] && ids[4] == ids[5] && book.dropped == 3, "{ids:?}");
        assert_eq!(book.id(&format!("0{long}")), ids[0]);
        assert_eq!(book.into_names().get(ids[5]), Some(OTHER));
    }
}
