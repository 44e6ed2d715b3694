//! What reports for a pull request have in common: tables, folded where they are long, and text that stays text.

use stepscope_plan::text;

use super::table::Table;

/// Longer tables are folded.
const SHORT: usize = 8;

/// A table under its title, folded if it is long or for those who look for it.
pub(crate) fn titled<H: AsRef<str>>(table: &Table<H>) -> String {
    if table.detail || table.rows.len() > SHORT {
        let (title, cells) = (escaped(&table.title), written(table));
        format!("\n<details>\n<summary>{title}</summary>\n\n{cells}\n</details>\n")
    } else {
        open(table)
    }
}

/// A table under its title, however long it is.
pub(crate) fn open<H: AsRef<str>>(table: &Table<H>) -> String {
    format!("\n### {}\n\n{}", escaped(&table.title), written(table))
}

fn written<H: AsRef<str>>(table: &Table<H>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let columns = || 0..table.headers.len();
    let mut written = line(columns().map(|column| escaped(table.header(column))).collect());
    let sides = columns().map(|column| if table.is_right(column) { "--:" } else { "---" });
    written += &format!("|{}|\n", sides.collect::<Vec<_>>().join("|"));
    for row in &table.rows {
        let cell = |cell: &String| text::shortened(cell, text::LONGEST_NAME);
        let on_one_line = |cell: String| cell.split_whitespace().collect::<Vec<_>>().join(" ");
        written += &line(row.iter().map(|whole| escaped(&on_one_line(cell(whole)))).collect());
    }
    written
}

/// Text that is shown as it is.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text::printable(text).chars() {
        match c {
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '~' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_of_others_are_only_names() {
        assert_eq!(escaped("a|b<c>*d_e\n"), "a\\|b&lt;c>\\*d\\_e\u{fffd}");
    }
}
