//! From the peak to what is used of it, and what the end of a step depends on.

use plotters::style::RGBColor;
use stepscope_analyzer::{Analysis, Class, PathShare, WaterfallLine, WaterfallPart, WaterfallRow};
use stepscope_plan::text;
use stepscope_tui::palette;

use crate::render::{
    html::{chart, escaped},
    table::{Table, Topic, duration},
};

/// How many lines the waterfall has at most.
const MOST_LINES: usize = 14;
/// How long the longest bar is.
const BAR: f64 = 25.0;
/// How many parts of the critical path are told.
const MOST_PARTS: usize = 8;

/// What the waterfall is of.
fn title(analysis: &Analysis) -> String {
    let whole = if analysis.window.whole { "the recording" } else { "a step" };
    let ranks =
        if analysis.counted.iter().filter(|time| time.windows > 0).count() > 1 { ", mean of all ranks" } else { "" };
    match analysis.waterfall.iter().any(|row| row.part == WaterfallPart::Mfu) {
        true => format!("From peak to MFU: where {whole} goes{ranks}"),
        false => format!("Where {whole} goes{ranks}"),
    }
}

fn lines(analysis: &Analysis, most: usize) -> Vec<WaterfallLine> {
    let nothing_ran = analysis.counted.iter().all(|time| time.kernel_count == 0);
    if nothing_ran { Vec::new() } else { WaterfallRow::lines(&analysis.waterfall, most) }
}

/// The waterfall in a sentence.
pub(super) fn summary(analysis: &Analysis) -> Option<String> {
    const MOST: usize = 8;
    let lines = lines(analysis, MOST);
    let parts: Vec<String> = lines.iter().map(|line| format!("{} {:.1}", line.words, line.points)).collect();
    (!parts.is_empty()).then(|| format!("{} points", parts.join(", ")))
}

/// The waterfall.
pub(super) fn table(analysis: &Analysis) -> Table {
    let row = |line: &WaterfallLine| {
        let bar = "█".repeat((line.points.max(0.0) / 100.0 * BAR).round() as usize);
        vec![line.words.clone(), duration(line.time_ns), format!("{:.1}", line.points), bar]
    };
    let rows = lines(analysis, MOST_LINES).iter().map(row).collect();
    Table {
        topic: Topic::Waterfall,
        title: title(analysis),
        headers: vec!["part", ">time", ">points", ""],
        rows,
        detail: false,
    }
}

/// The waterfall as bars, each of which begins where the one before it ends.
pub(super) fn plot(analysis: &Analysis) -> String {
    let lines = lines(analysis, MOST_LINES);
    if lines.is_empty() {
        return String::new();
    }
    let row = |line: &WaterfallLine| {
        let colour = chart::hex(colour(line.part));
        let (from, wide) = (line.from.clamp(0.0, 100.0), line.points.clamp(0.0, 100.0));
        format!(
            "<tr><td>{}</td><td class=\"right\">{}</td><td class=\"right\">{:.1}</td><td class=\"bar\"><span \
             style=\"margin-left:{from:.2}%;width:{wide:.2}%;background:{colour}\"></span></td></tr>\n",
            escaped(&line.words),
            duration(line.time_ns),
            line.points
        )
    };
    let rows: String = lines.iter().map(row).collect();
    format!(
        "<h3>{}</h3>\n<table class=\"waterfall\">\n<thead><tr><th>part</th><th class=\"right\">time</th><th \
         class=\"right\">points</th><th></th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n",
        escaped(&title(analysis))
    )
}

/// The color of a part, as in the dashboard.
fn colour(part: Option<WaterfallPart>) -> RGBColor {
    match part {
        Some(WaterfallPart::Kernels { family }) => chart::of_family(family),
        Some(WaterfallPart::Communication { .. } | WaterfallPart::Stragglers) => {
            chart::shade(palette::class(Class::Communication))
        }
        Some(WaterfallPart::Copies) => chart::shade(palette::class(Class::Copy)),
        Some(WaterfallPart::Idle { .. } | WaterfallPart::Bubble) | None => chart::GREY,
        Some(WaterfallPart::Recomputation | WaterfallPart::Mfu) => chart::shade(palette::class(Class::Compute)),
    }
}

/// What the end of a step depends on.
pub(super) fn critical_path(analysis: &Analysis) -> Table {
    let path = analysis.critical_path.as_ref();
    let step = path.and_then(|path| path.step).map_or("the recording".into(), |step| format!("step {step}"));
    let length = path.map_or(0, |path| path.length_ns);
    let ranks = path.map_or(&[][..], |path| &path.ranks);
    let on = match ranks {
        [_, _, ..] => format!(", {} of it on rank {}", text::rough_percent(ranks[0].share), ranks[0].rank),
        _ => String::new(),
    };
    let parts = path.map_or(&[][..], |path| &path.parts);
    let row = |part: &PathShare| {
        let (elsewhere, slack) = match part.slack_ns {
            Some(slack) => (duration(part.elsewhere_ns), duration(slack)),
            None => Default::default(),
        };
        vec![part.part.words(), duration(part.time_ns), text::percent(part.share), elsewhere, slack]
    };
    let (shown, others) = parts.split_at(parts.len().min(MOST_PARTS));
    let mut rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    if !others.is_empty() {
        let sum = |of: fn(&PathShare) -> i64| others.iter().map(of).sum::<i64>();
        let share = text::percent(others.iter().map(|part| part.share).sum());
        let (time, elsewhere) = (sum(|part| part.time_ns), sum(|part| part.elsewhere_ns));
        rows.push(vec![
            text::counted(others.len() as u64, "other"),
            duration(time),
            share,
            duration(elsewhere),
            String::new(),
        ]);
    }
    let title = format!("Critical path of {step}: what its end depends on ({}{on})", text::duration(length));
    Table {
        topic: Topic::Time,
        title,
        headers: vec!["part", ">on the path", ">share", ">elsewhere", ">slack there"],
        rows,
        detail: false,
    }
}
