//! The report for a pull request.

use stepscope_analyzer::Analysis;

use super::{
    brief, report,
    tables::{Room, tables},
};
use crate::render::{
    markdown::{self, escaped},
    table::{Table, Topic},
};

const ROOM: Room = Room { ranks: 32, steps: 50, kernels: 30 };

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
    let (waterfall, tables): (Vec<Table>, Vec<Table>) =
        tables(analysis, ROOM).into_iter().partition(|table| table.topic == Topic::Waterfall);
    waterfall.iter().for_each(|table| text += &markdown::titled(table));
    text += "\n### Findings\n\n";
    if analysis.findings.is_empty() {
        text += "Nothing stands out.\n";
    }
    for (number, finding) in (1..).zip(&analysis.findings) {
        let what = format!("{}{}", finding.summary, brief::win(analysis, finding));
        let [what, evidence, advice] = [&what, &finding.evidence.text, &finding.advice].map(|part| escaped(part));
        text += &format!("{number}. **{what}**<br>\n   {evidence}<br>\n   *Try:* {advice}\n");
    }
    tables.iter().for_each(|table| text += &markdown::titled(table));
    text
}
