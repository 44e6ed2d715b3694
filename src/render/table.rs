//! A table of a report: headers and rows as text, as it came.

use stepscope_plan::text;

/// What a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Figures,
    Waterfall,
    Waiting,
    Time,
    Memory,
    Pipeline,
    Communication,
    Kernels,
    Devices,
    Scaling,
}

/// A table. Columns whose header begins with `>` are aligned to the right.
pub(crate) struct Table<H = &'static str> {
    pub(crate) topic: Topic,
    pub(crate) title: String,
    pub(crate) headers: Vec<H>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Whether it is a detail, which text reports omit.
    pub(crate) detail: bool,
}

impl<H: AsRef<str>> Table<H> {
    /// The header of a column.
    pub(crate) fn header(&self, column: usize) -> &str {
        self.headers[column].as_ref().trim_start_matches('>')
    }

    /// Whether a column is aligned to the right.
    pub(crate) fn is_right(&self, column: usize) -> bool {
        self.headers[column].as_ref().starts_with('>')
    }

    /// Drops columns without any known value, and all rows if only names are left.
    pub(crate) fn without_unknown(mut self) -> Table<H> {
        let is_known = |column: usize| column == 0 || self.rows.iter().any(|row| row[column] != UNKNOWN);
        let kept: Vec<bool> = (0..self.headers.len()).map(is_known).collect();
        let mut columns = kept.iter();
        self.headers.retain(|_| columns.next() == Some(&true));
        for row in &mut self.rows {
            let mut columns = kept.iter();
            row.retain(|_| columns.next() == Some(&true));
        }
        if self.headers.len() == 1 {
            self.rows.clear();
        }
        self
    }
}

/// Stands for an unknown value.
pub(crate) const UNKNOWN: &str = "-";

pub(crate) fn unknown() -> String {
    UNKNOWN.into()
}

pub(crate) fn known<T>(value: Option<T>, written: impl FnOnce(T) -> String) -> String {
    value.map_or_else(unknown, written)
}

pub(crate) fn duration(nanoseconds: i64) -> String {
    if nanoseconds == 0 { "0".into() } else { text::duration(nanoseconds) }
}
