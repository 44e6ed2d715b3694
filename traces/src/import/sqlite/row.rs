//! One row, as far as its values are what they should be.

use std::borrow::Cow;

use rusqlite::types::ValueRef;

use crate::ids::Nanos;

/// Longer texts are cut: no kernel has a name like that.
const LONGEST_TEXT: usize = 64 << 10;

/// One row of a table. Columns are counted as they were asked for; one that the table does not have is NULL.
pub(crate) struct Row<'a>(pub(super) &'a rusqlite::Row<'a>);

impl Row<'_> {
    /// A whole number.
    pub(crate) fn integer(&self, column: usize) -> Option<i64> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// A whole number of a smaller type.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize) -> Option<T> {
        self.integer(column).and_then(|value| value.try_into().ok())
    }

    /// A number, whole or not.
    pub(crate) fn real(&self, column: usize) -> Option<f64> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Integer(value)) => Some(value as f64),
            Ok(ValueRef::Real(value)) => Some(value),
            _ => None,
        }
    }

    /// Bytes that are no text.
    pub(crate) fn bytes(&self, column: usize) -> Option<&[u8]> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Blob(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// A text.
    pub(crate) fn text(&self, column: usize) -> Option<Cow<'_, str>> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Text(text)) => Some(String::from_utf8_lossy(&text[..text.len().min(LONGEST_TEXT)])),
            _ => None,
        }
    }

    /// When something began and how long it took, by two columns, if that can be.
    pub(crate) fn times(&self, start: usize, end: usize) -> Option<(Nanos, Nanos)> {
        let (start, end) = self.integer(start).zip(self.integer(end))?;
        let duration = end.checked_sub(start).filter(|duration| *duration >= 0).map(Nanos)?;
        Some((Nanos(start), duration)).filter(|(start, duration)| start.has_end(*duration))
    }
}
