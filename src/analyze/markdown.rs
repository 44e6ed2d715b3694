//! The report for a pull request.

use stepscope_analyzer::Analysis;

use super::{
    report,
    tables::{Room, Table, tables},
};
use crate::text;

const ROOM: Room = Room { ranks: 32, steps: 50, kernels: 30 };
/// Longer tables are folded.
const SHORT: usize = 8;

pub(super) fn written(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let mut text = format!("## {}\n\n", escaped(&run.name));
    text += &format!("**{}** · {}\n\n", run.state.word(), escaped(&report::what_was_run(analysis)));
    if let Some(lost) = report::loss(analysis) {
        text += &format!("> [!WARNING]\n> **Lost:** {}\n\n", escaped(&lost));
    }
    text += "| | |\n|---|---|\n";
    for fact in report::facts(analysis) {
        text += &format!("| **{}** | {} |\n", fact.about, escaped(&fact.says));
    }
    text += "\n### Findings\n\n";
    if analysis.findings.is_empty() {
        text += "Nothing stands out.\n";
    }
    for (number, finding) in (1..).zip(&analysis.findings) {
        let [what, evidence, advice] = [&finding.what, &finding.evidence, &finding.advice].map(|part| escaped(part));
        text += &format!("{number}. **{what}**<br>\n   {evidence}<br>\n   *Try:* {advice}\n");
    }
    for table in tables(analysis, ROOM) {
        text += &if table.detail || table.rows.len() > SHORT {
            format!(
                "\n<details>\n<summary>{}</summary>\n\n{}\n</details>\n",
                escaped(&table.title),
                written_table(&table)
            )
        } else {
            format!("\n### {}\n\n{}", escaped(&table.title), written_table(&table))
        };
    }
    text
}

fn written_table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.headers.iter().map(|header| header.trim_start_matches('>').to_owned()).collect());
    let sides = table.headers.iter().map(|header| if header.starts_with('>') { "--:" } else { "---" });
    text += &format!("|{}|\n", sides.collect::<Vec<_>>().join("|"));
    for row in &table.rows {
        text += &line(row.iter().map(|cell| escaped(&cell.split_whitespace().collect::<Vec<_>>().join(" "))).collect());
    }
    text
}

/// Text that is shown as it is.
fn escaped(text: &str) -> String {
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
