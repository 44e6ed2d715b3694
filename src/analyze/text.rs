//! The report for a terminal.

use anstyle::{AnsiColor, Style};
use stepscope_analyzer::{Analysis, Finding};
use stepscope_plan::text;

use super::{
    brief, report,
    tables::{Room, tables},
    waterfall,
};
use crate::{
    render::text::{BOLD, GAP, labelled, titled},
    terminal,
};

const ROOM: Room = Room { ranks: 8, steps: 0, kernels: 10 };
/// Findings that stand before the tables; the others stand after them.
const FIRST_FINDINGS: usize = 3;

/// The report in so many columns.
pub(super) fn written(analysis: &Analysis, columns: usize) -> String {
    let run = &analysis.run;
    let name = text::shortened(&text::printable(&run.name), columns / 2);
    let about = text::printable(&report::what_was_run(analysis));
    let mut text = format!("{BOLD}{name}{BOLD:#}  {}", terminal::state(run.state));
    let used = name.chars().count() + GAP + run.state.word().len();
    if used + GAP + about.chars().count() <= columns {
        text += &format!("  {about}\n");
    } else {
        text += "\n";
        text::wrapped(&about, columns - GAP).iter().for_each(|line| text += &format!("  {line}\n"));
    }
    if let Some(lost) = report::loss(analysis) {
        let red = AnsiColor::Red.on_default().bold();
        text += &labelled("lost", &lost, red, columns);
    }
    if let Some(waterfall) = waterfall::summary(analysis) {
        text += &labelled("waterfall", &waterfall, BOLD, columns);
    }
    for fact in report::facts(analysis) {
        text += &labelled(fact.about, &text::printable(&fact.says), BOLD, columns);
    }
    let (first, others) = analysis.findings.split_at(analysis.findings.len().min(FIRST_FINDINGS));
    text += &format!("\n{BOLD}Findings{BOLD:#}\n");
    if first.is_empty() {
        text += "  nothing stands out\n";
    }
    let told = |number: usize, each: &Finding| finding(number, each, &brief::win(analysis, each), columns);
    first.iter().enumerate().for_each(|(index, each)| text += &told(index + 1, each));
    if !others.is_empty() {
        text += &format!("     and {} below\n", text::counted(others.len() as u64, "more finding"));
    }
    for table in tables(analysis, ROOM).iter().filter(|table| !table.detail) {
        text += &titled(table, columns);
    }
    if !others.is_empty() {
        text += &format!("\n{BOLD}More findings{BOLD:#}\n");
        others.iter().enumerate().for_each(|(index, each)| text += &told(FIRST_FINDINGS + index + 1, each));
    }
    text
}

fn finding(number: usize, finding: &Finding, win: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut paragraph = |first: &str, says: &str, style: Style| {
        let indent = 5;
        for (index, line) in text::wrapped(&text::printable(says), columns - indent).iter().enumerate() {
            let begin = if index == 0 { first } else { "" };
            text += &format!("{begin:indent$}{style}{line}{style:#}\n");
        }
    };
    paragraph(&format!("{number:>3}  "), &format!("{}{win}", finding.summary), BOLD);
    paragraph("", &finding.evidence.text, Style::new());
    paragraph("", &format!("try: {}", finding.advice), AnsiColor::Cyan.on_default());
    text
}
