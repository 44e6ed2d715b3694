//! Numbers and tables as people read them.

use comfy_table::{CellAlignment, Table, presets};
use stepscope_traces::Nanos;

/// A whole number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with what it counts, in the singular where it is one.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A parameter count as people say it.
pub(crate) fn parameters(number: u64) -> String {
    match number {
        0..1_000_000_000 => format!("{:.1} M", number as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.1} B", number as f64 / 1e9),
        _ => format!("{:.1} T", number as f64 / 1e12),
    }
}

/// A size in the unit that leaves one to three digits before the point.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A length of time in the unit that leaves one to three digits before the point.
pub(crate) fn duration(time: Nanos) -> String {
    match time.seconds() {
        seconds if seconds < 1.0 => scaled(time.0 as f64, 1000.0, &["ns", "µs", "ms"]),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.95 would be written as 1000.0.
    while number >= step - 0.05 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{number:.decimals$} {}", units[unit])
}

/// Text from a file, without what could pass for something else on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A command line that a shell would read the same way.
pub(crate) fn command_line(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", printable(argument).replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// This program, as it was called, so that what is printed can be typed.
pub(crate) fn program() -> String {
    command_line(&[std::env::args().next().unwrap_or_else(|| env!("CARGO_PKG_NAME").into())])
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
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(2, "event"), "2 events");
        assert_eq!(parameters(1_706_112), "1.7 M");
        assert_eq!(parameters(405_853_388_800), "405.9 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(123_456_789), "123.5 MB");
        assert_eq!(duration(Nanos(950)), "950 ns");
        assert_eq!(duration(Nanos(1_500_000)), "1.5 ms");
        assert_eq!(duration(Nanos(61 * Nanos::SECOND.0)), "61.0 s");
        assert_eq!(duration(Nanos(5400 * Nanos::SECOND.0)), "90.0 min");
    }

    #[test]
    fn text_of_others_does_no_harm() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        let words = ["train", "--note", "it's two words", ""].map(str::to_owned);
        assert_eq!(command_line(&words), "train --note 'it'\\''s two words' ''");
    }

    #[test]
    fn a_table_lines_up() {
        let text = table(&[">n", "what"], [vec!["1".into(), "one".into()], vec!["100".into(), "a hundred".into()]]);
        assert_eq!(text, "  n  what\n  1  one\n100  a hundred\n");
    }
}
