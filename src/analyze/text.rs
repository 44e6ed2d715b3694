//! The report for a terminal, in a hundred columns.

use anstyle::{AnsiColor, Style};
use stepscope_analyzer::{Analysis, Finding};

use super::{
    report,
    tables::{Room, Table, tables},
};
use crate::text;

const COLUMNS: usize = 100;
const ROOM: Room = Room { ranks: 8, steps: 0, kernels: 10 };
/// Findings that stand before the tables; the others stand after them.
const FIRST_FINDINGS: usize = 3;
/// Where what is said of a fact begins.
const INDENT: usize = 10;
/// Space between two columns.
const GAP: usize = 2;

const BOLD: Style = Style::new().bold();

pub(super) fn written(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let name = text::shortened(&text::printable(&run.name), COLUMNS / 2);
    let about = text::printable(&report::what_was_run(analysis));
    let mut text = format!("{BOLD}{name}{BOLD:#}  {}", text::state(run.state));
    let used = name.chars().count() + GAP + run.state.word().len();
    if used + GAP + about.chars().count() <= COLUMNS {
        text += &format!("  {about}\n");
    } else {
        text += "\n";
        text::wrapped(&about, COLUMNS - GAP).iter().for_each(|line| text += &format!("  {line}\n"));
    }
    if let Some(lost) = report::loss(analysis) {
        let red = AnsiColor::Red.on_default().bold();
        text += &labelled("lost", &lost, red);
    }
    for fact in report::facts(analysis) {
        text += &labelled(fact.about, &text::printable(&fact.says), BOLD);
    }
    let (first, others) = analysis.findings.split_at(analysis.findings.len().min(FIRST_FINDINGS));
    text += &format!("\n{BOLD}Findings{BOLD:#}\n");
    if first.is_empty() {
        text += "  nothing stands out\n";
    }
    first.iter().enumerate().for_each(|(index, each)| text += &finding(index + 1, each));
    for table in tables(analysis, ROOM).iter().filter(|table| !table.detail) {
        text += &format!("\n{BOLD}{}{BOLD:#}\n{}", table.title, fitted(table));
    }
    if !others.is_empty() {
        text += &format!("\n{BOLD}More findings{BOLD:#}\n");
        others.iter().enumerate().for_each(|(index, each)| text += &finding(FIRST_FINDINGS + index + 1, each));
    }
    text
}

/// A label, and what is said beside it.
fn labelled(label: &str, says: &str, style: Style) -> String {
    let lines = text::wrapped(says, COLUMNS - INDENT);
    let lines = lines.iter().enumerate().map(|(index, line)| match index {
        0 => format!("{style}{label}{style:#}{}{line}\n", " ".repeat(INDENT - label.len())),
        _ => format!("{}{line}\n", " ".repeat(INDENT)),
    });
    lines.collect()
}

fn finding(number: usize, finding: &Finding) -> String {
    let mut text = String::new();
    let mut paragraph = |first: &str, says: &str, style: Style| {
        let indent = 5;
        for (index, line) in text::wrapped(&text::printable(says), COLUMNS - indent).iter().enumerate() {
            let begin = if index == 0 { first } else { "" };
            text += &format!("{begin:indent$}{style}{line}{style:#}\n");
        }
    };
    paragraph(&format!("{number:>3}  "), &finding.what, BOLD);
    paragraph("", &finding.evidence, Style::new());
    paragraph("", &format!("try: {}", finding.advice), AnsiColor::Cyan.on_default());
    text
}

/// A table that fits: what is too wide is cut in its widest column of text.
fn fitted(table: &Table) -> String {
    let mut rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|cell| text::printable(cell)).collect()).collect();
    let width = |column: usize| {
        let header = table.headers[column].trim_start_matches('>').chars().count();
        rows.iter().map(|row| row[column].chars().count()).chain([header]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.headers.len()).map(width).collect();
    let excess = (widths.iter().sum::<usize>() + GAP * (widths.len() - 1)).saturating_sub(COLUMNS);
    let texts = (0..widths.len()).filter(|column| !table.headers[*column].starts_with('>'));
    if let Some(widest) = texts.max_by_key(|column| widths[*column]).filter(|_| excess > 0) {
        let room = widths[widest].saturating_sub(excess);
        rows.iter_mut().for_each(|row| row[widest] = text::shortened(&row[widest], room));
    }
    text::table(&table.headers, rows)
}
