//! Texts, which tables of an export refer to by their numbers.

use std::borrow::Cow;

use super::super::sqlite::{Lookup, TableColumn};

/// Where they are.
static TEXTS: Lookup = Lookup { table: Cow::Borrowed("StringIds"), id: "id", value: "value" };

/// A column that refers to a text, or holds it.
pub(super) const fn text(column: &'static str) -> TableColumn<'static> {
    TableColumn::In(column, &TEXTS)
}
