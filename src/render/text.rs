//! Parts of text reports: labels, and tables that fit.

use anstyle::Style;
use stepscope_plan::text;

use super::table::Table;
use crate::terminal;

/// Space between two columns.
pub(crate) const GAP: usize = 2;
/// A column of text is cut to no less than this.
const LEAST_TEXT: usize = 28;
/// The column where the text of a fact starts.
const INDENT: usize = 10;

pub(crate) const BOLD: Style = Style::new().bold();

/// A label and its text, wrapped.
pub(crate) fn labelled(label: &str, says: &str, style: Style, columns: usize) -> String {
    let lines = text::wrapped(says, columns - INDENT);
    let lines = lines.iter().enumerate().map(|(index, line)| match index {
        0 => format!("{style}{label}{style:#}{}{line}\n", " ".repeat(INDENT - label.len())),
        _ => format!("{}{line}\n", " ".repeat(INDENT)),
    });
    lines.collect()
}

/// A table under its title.
pub(crate) fn titled<H: AsRef<str>>(table: &Table<H>, columns: usize) -> String {
    format!("\n{BOLD}{}{BOLD:#}\n{}", text::printable(&table.title), fitted(table, columns))
}

/// A table that fits: its widest column of text is cut, and then the last columns are left out, which is said.
fn fitted<H: AsRef<str>>(table: &Table<H>, columns: usize) -> String {
    let mut rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|cell| text::printable_name(cell)).collect()).collect();
    let width = |column: usize| {
        let header = table.header(column).chars().count();
        rows.iter().map(|row| row[column].chars().count()).chain([header]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..table.headers.len()).map(width).collect();
    let excess = |widths: &[usize]| (widths.iter().sum::<usize>() + GAP * (widths.len() - 1)).saturating_sub(columns);
    let texts = (0..widths.len()).filter(|column| !table.is_right(*column));
    if let Some(widest) = texts.max_by_key(|column| widths[*column]).filter(|_| excess(&widths) > 0) {
        let room = widths[widest].saturating_sub(excess(&widths)).max(widths[widest].min(LEAST_TEXT));
        rows.iter_mut().for_each(|row| row[widest] = text::shortened(&row[widest], room));
        widths[widest] = room;
    }
    while excess(&widths) > 0 && widths.len() > 2 {
        widths.pop();
    }
    let shown = widths.len();
    rows.iter_mut().for_each(|row| row.truncate(shown));
    let headers: Vec<&str> = table.headers.iter().map(AsRef::as_ref).collect();
    let left_out = (shown..headers.len()).map(|column| table.header(column)).filter(|header| !header.is_empty());
    let left_out: Vec<&str> = left_out.collect();
    let note = match left_out.as_slice() {
        [] => String::new(),
        names => format!("(a wider terminal shows: {})\n", names.join(", ")),
    };
    terminal::table(&headers[..shown], rows) + &note
}
