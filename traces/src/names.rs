//! The texts behind interned names.

use std::collections::BTreeMap;

use crate::{
    ids::{CounterId, NameId},
    tables::Strings,
};

/// Ids below this are counters, so that one table holds both and a counter's id fits in 16 bits.
pub const FIRST_NAME: NameId = NameId(4096);

/// The names of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    texts: BTreeMap<NameId, String>,
}

impl Names {
    /// The text of a name, unless it was lost.
    pub fn get(&self, id: NameId) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// The name of a counter, unless it was lost.
    pub fn counter(&self, id: CounterId) -> Option<&str> {
        self.get(NameId(u32::from(id.0)))
    }

    /// Every name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.texts.iter().map(|(id, text)| (*id, text.as_str()))
    }

    pub(crate) fn extend(&mut self, strings: &Strings) {
        self.texts.extend(strings.rows().map(|(id, text)| (id, text.to_owned())));
    }
}
