//! Several runs in one table, with a column each: what differs, which is best, and how it scales.

use anyhow::Result;
use stepscope_analyzer::Several;
use stepscope_plan::text;

use super::{answer, html::scaling};
use crate::render::{
    Format,
    html::{self, Section},
    json, markdown,
    table::{Table, Topic, UNKNOWN, known},
    text::{BOLD, titled},
};

/// Runs that stand beside each other on a terminal; more of them stand below.
const RUNS_OF_A_TERMINAL: usize = 5;
/// Letters of a run's name.
const NAME: usize = 14;

pub(crate) fn written(format: Format, several: &Several, columns: usize) -> Result<String> {
    Ok(match format {
        Format::Text => of_terminal(several, columns),
        Format::Json => json::written(several)?,
        Format::Markdown => {
            let mut text = format!("## {}\n", markdown::escaped(&best(several)));
            warnings(several).iter().for_each(|warning| {
                text += &format!("\n> [!WARNING]\n> {}\n", markdown::escaped(warning));
            });
            tables(several, several.runs.len()).iter().for_each(|table| text += &markdown::open(table));
            text
        }
        Format::Html => of_browser(several)?,
    })
}

fn of_terminal(several: &Several, columns: usize) -> String {
    let mut text = String::new();
    let mut lines = |says: &str, style: anstyle::Style| {
        for line in text::wrapped(&text::printable(says), columns) {
            text += &format!("{style}{line}{style:#}\n");
        }
    };
    lines(&best(several), BOLD);
    let yellow = anstyle::AnsiColor::Yellow.on_default();
    warnings(several).iter().for_each(|warning| lines(&format!("warning: {warning}"), yellow));
    tables(several, RUNS_OF_A_TERMINAL).iter().for_each(|table| text += &titled(table, columns));
    text
}

fn of_browser(several: &Several) -> Result<String> {
    let tables = tables(several, several.runs.len());
    let of = |topic: Topic| tables.iter().filter(|table| table.topic == topic).map(html::table).collect::<String>();
    let mut head = format!("<header>\n<h1>{}</h1>\n", html::escaped(&best(several)));
    for warning in warnings(several) {
        head += &format!("<p class=\"lost\">{}</p>\n", html::escaped(&warning));
    }
    head += "</header>\n";
    let sections = [
        Section::new("Runs", of(Topic::Figures)),
        Section::new("Scaling", scaling::plots(several)? + &of(Topic::Scaling)),
    ];
    let sections: Vec<Section> = sections.into_iter().flatten().collect();
    Ok(html::page(&several.runs.join(", "), &head, &sections))
}

/// The answer: who is fastest, and who needs least memory.
fn best(several: &Several) -> String {
    let of = |metric: &str| {
        let row = several.metrics.iter().find(|row| row.metric == metric)?;
        let run = row.best.iter().position(|best| *best)?;
        let value = answer::value(row.unit, row.values[run]?);
        Some((several.runs[run].clone(), value, run))
    };
    let fastest = of("tokens_per_second")
        .map(|(run, rate, index)| format!("{run} is fastest: {rate} tokens/s{}", gain(several, index)));
    // Who recorded for longer need not be slower.
    let has_steps = several.diffs.iter().flat_map(|diff| &diff.step_time).all(|time| !time.whole);
    let by_step = || of("step_time").filter(|_| has_steps);
    let fastest = fastest.or_else(|| by_step().map(|(run, time, _)| format!("{run} is fastest: {time} per step")));
    let smallest =
        of("peak_memory").map(|(run, bytes, _)| format!("{run} uses the least memory: {bytes} on its fullest rank"));
    let known: Vec<String> = fastest.into_iter().chain(smallest).collect();
    if several.why_not[1..].iter().all(|why_not| !why_not.is_empty()) {
        return format!("none of these runs is comparable with {}", several.runs[0]);
    }
    if known.is_empty() { "no metric of these runs differs".into() } else { known.join("; ") }
}

/// How much faster than the base.
fn gain(several: &Several, run: usize) -> String {
    let diff = run.checked_sub(1).and_then(|other| several.diffs.get(other));
    let metric = diff.and_then(|diff| answer::metric(diff, "tokens_per_second"));
    let chance = metric.map_or("", |metric| if metric.significant { "" } else { ", not significant" });
    let change = metric.and_then(|metric| metric.relative);
    change
        .map_or_else(String::new, |change| format!(", {} over {}{chance}", text::percent_more(change), several.runs[0]))
}

fn warnings(several: &Several) -> Vec<String> {
    let runs = several.runs.iter().zip(&several.why_not).filter(|(_, why_not)| !why_not.is_empty());
    let base = &several.runs[0];
    let not = runs.map(|(run, why)| format!("{run} is not comparable with {base}: {}", why.join("; ")));
    not.chain(several.notes.iter().cloned()).collect()
}

/// The table, in as many pieces as there is room for runs; and how it scales.
fn tables(several: &Several, room: usize) -> Vec<Table<String>> {
    // The base stands in every piece.
    let others: Vec<usize> = (1..several.runs.len()).collect();
    let with_base = |others: &[usize]| piece(several, &[&[0], others].concat());
    let mut tables: Vec<Table<String>> = others.chunks(room.saturating_sub(1).max(1)).map(with_base).collect();
    tables.extend((!several.scaling.is_empty()).then(|| scaling_table(several)));
    tables
}

fn piece(several: &Several, runs: &[usize]) -> Table<String> {
    let header = |run: &usize| format!(">{}  ", text::shortened(&several.runs[*run], NAME));
    let headers = std::iter::once(String::new()).chain(runs.iter().map(header)).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in &several.settings {
        let value = |run: &usize| row.values[*run].clone().unwrap_or_else(|| UNKNOWN.into());
        // As wide as figures and the mark behind the best of them.
        let value = |run: &usize| text::shortened(&value(run), NAME) + "  ";
        rows.push(std::iter::once(row.setting.clone()).chain(runs.iter().map(value)).collect());
    }
    let values = |name: &str| several.metrics.iter().find(|row| row.metric == name).map(|row| row.values.clone());
    for row in several.metrics.iter().filter(|row| answer::says_something(&row.metric, &values)) {
        let value = |run: &usize| {
            let value = known(row.values[*run], |value| answer::value(row.unit, value));
            format!("{value}{}", if row.best[*run] { " *" } else { "  " })
        };
        rows.push(std::iter::once(row.metric.clone()).chain(runs.iter().map(value)).collect());
    }
    let title = "Settings that differ, and metrics (* best)".into();
    Table { topic: Topic::Figures, title, headers, rows, detail: false }
}

fn scaling_table(several: &Several) -> Table<String> {
    let rows = several.scaling.iter().map(|point| {
        vec![
            point.run.clone(),
            point.ranks.to_string(),
            known(point.tokens_per_second, |rate| text::count(rate.round() as u64)),
            known(point.efficiency, text::percent),
            known(point.peak_bytes, text::bytes),
        ]
    });
    let headers = ["run", ">ranks", ">tokens/s", ">parallel efficiency", ">peak memory"].map(str::to_owned);
    let title = "Scaling".into();
    Table { topic: Topic::Scaling, title, headers: headers.into(), rows: rows.collect(), detail: false }
        .without_unknown()
}
