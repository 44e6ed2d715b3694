//! What is written on a terminal: tables, states in their colors, command lines that can be typed.

use std::io::{IsTerminal, stdout};

use anstyle::AnsiColor;
use comfy_table::{CellAlignment, Table, presets};
use stepscope_plan::text;
use stepscope_traces::State;

/// What became of a run, in its color.
pub(crate) fn state(state: State) -> String {
    let style = match state {
        State::Complete => AnsiColor::Green.on_default(),
        State::Recording => AnsiColor::Cyan.on_default(),
        State::Interrupted => AnsiColor::Yellow.on_default(),
    };
    format!("{style}{}{style:#}", state.word())
}

/// A command line that a shell would read the same way.
pub(crate) fn command_line(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", text::printable(argument).replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// This program, as it was called, so that what is printed can be typed.
pub(crate) fn program() -> String {
    command_line(&[std::env::args().next().unwrap_or_else(|| env!("CARGO_PKG_NAME").into())])
}

/// The width of a report that does not go to a terminal.
pub(crate) const COLUMNS: usize = 100;
/// A report is not narrower or wider than this.
const FEWEST_COLUMNS: usize = 80;
const MOST_COLUMNS: usize = 160;

/// The width of a report on stdout: that of the terminal, where it is one.
pub(crate) fn columns() -> usize {
    let size = || terminal_size::terminal_size_of(stdout()).map(|(width, _)| usize::from(width.0));
    columns_of(std::env::var("COLUMNS").ok().as_deref(), stdout().is_terminal().then(size).flatten())
}

/// The width of a report where a terminal has this size, unless the environment says otherwise.
fn columns_of(variable: Option<&str>, size: Option<usize>) -> usize {
    let chosen = variable.and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    chosen.or(size).unwrap_or(COLUMNS).clamp(FEWEST_COLUMNS, MOST_COLUMNS)
}

/// A table without lines; columns whose header begins with `>` are aligned to the right.
pub(crate) fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headers.iter().map(|header| header.trim_start_matches('>')));
    table.add_rows(rows);
    for (column, header) in table.column_iter_mut().zip(headers) {
        column.set_padding((0, 2));
        if header.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_command_line_back() {
        let words = ["train", "--note", "it's two words", ""].map(str::to_owned);
        assert_eq!(command_line(&words), "train --note 'it'\\''s two words' ''");
    }

    #[test]
    fn a_report_is_as_wide_as_the_terminal() {
        assert_eq!(columns_of(None, Some(132)), 132);
        assert_eq!(columns_of(Some("90"), Some(132)), 90);
        assert_eq!(columns_of(Some("wide"), Some(132)), 132);
        assert_eq!(columns_of(Some("0"), None), COLUMNS);
        assert_eq!((columns_of(None, Some(40)), columns_of(Some("1000"), None)), (FEWEST_COLUMNS, MOST_COLUMNS));
    }

    #[test]
    fn a_table_lines_up() {
        let text = table(&[">n", "what"], [vec!["1".into(), "one".into()], vec!["100".into(), "a hundred".into()]]);
        assert_eq!(text, "  n  what\n  1  one\n100  a hundred\n");
    }
}
