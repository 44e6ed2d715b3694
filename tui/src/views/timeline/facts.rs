//! What is known of the selected span, and what colors and letters mean.

use std::cmp::Reverse;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::SpanFacts;
use stepscope_plan::text;
use stepscope_traces::Family;
use stepscope_traces::{Rank, Stream};

use crate::{
    data::TimelineDetail,
    theme::Theme,
    widgets::{row, say},
};

/// How many lines it takes.
pub(super) const HEIGHT: u16 = 3;

/// Draws what is known of a span on a stream of a rank; it began so long after its step did, if that is known.
pub(super) fn draw(
    theme: &Theme,
    facts: &SpanFacts,
    (rank, stream): (Rank, Option<Stream>),
    since_step: Option<i64>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (glyph, style) = theme.filled(theme.family(facts.family));
    let name = text::shortened(&text::printable(&facts.name), usize::from(area.width).saturating_sub(4));
    let title = Line::from(vec![
        Span::raw(" "),
        Span::styled(glyph.to_string(), style),
        Span::styled(format!(" {name}"), theme.strong()),
    ]);
    say(buffer, row(area, 0), title);
    for (line, words) in [belongs(facts, rank, stream), takes(facts, since_step)].into_iter().enumerate() {
        let words = fitting(&words, usize::from(area.width).saturating_sub(4));
        say(buffer, row(area, line as u16 + 1), Line::raw(format!("   {words}")));
    }
}

/// How long it takes, and what it gets done.
fn takes(facts: &SpanFacts, since_step: Option<i64>) -> Vec<String> {
    let length = facts.end.saturating_sub(facts.start);
    let exact = format!("{} ns", text::count(length.max(0) as u64));
    let took = text::duration(length);
    let mut words = vec![if length < 1_000 { format!("took {exact}") } else { format!("took {took} ({exact})") }];
    words.extend(facts.flops.map(|flops| text::operations(flops as f64)));
    words.extend(facts.flops_per_second().map(text::flops));
    words.extend(facts.bytes.map(text::bytes));
    words.extend(facts.bytes_per_second().map(text::bandwidth));
    words.extend(since_step.map(|since| format!("starts {} into the step", text::duration(since))));
    words
}

/// Where it ran, and what it belongs to.
fn belongs(facts: &SpanFacts, rank: Rank, stream: Option<Stream>) -> Vec<String> {
    let stream = stream.map_or("unknown stream".to_owned(), |stream| format!("stream {stream}"));
    let kind = facts.kind.word().replace('_', "-");
    let what = if kind == "kernel" { format!("{} kernel", facts.family.word()) } else { kind };
    let mut words = vec![what, format!("rank {rank}, {stream}")];
    words.extend(facts.phase.map(|phase| phase.word().to_owned()));
    words.extend(facts.layer.map(|layer| format!("layer {layer}")));
    words.extend(facts.micro_batch.map(|batch| format!("micro-batch {batch}")));
    words.extend(facts.step.map(|step| format!("step {step}")));
    words
}

/// As many words as there is room for.
fn fitting(words: &[String], room: usize) -> String {
    let mut line = String::new();
    for word in words {
        let longer = if line.is_empty() { word.clone() } else { format!("{line} · {word}") };
        if longer.chars().count() > room && !line.is_empty() {
            break;
        }
        line = longer;
    }
    line
}

/// Says what colors and letters mean: of what takes most of the time in sight, as much as there is room for.
pub(super) fn draw_legend(theme: &Theme, timeline: &TimelineDetail, place: Rect, buffer: &mut Buffer) {
    let entry = |family: Family| {
        let (glyph, style) = theme.filled(theme.family(family));
        [Span::styled(format!(" {glyph}"), style), Span::styled(format!(" {} ", family.word()), theme.quiet())]
    };
    let width = |family: Family| entry(family).iter().map(Span::width).sum::<usize>();
    let columns = || timeline.ranks.iter().flat_map(|rank| &rank.columns.lanes).flat_map(|lane| &lane.columns);
    let time =
        |family: Family| columns().fold(0_i64, |sum, column| sum.saturating_add(column.busy_ns[family as usize]));
    let mut longest: Vec<(i64, Family)> = Family::ALL.iter().map(|family| (time(*family), *family)).collect();
    longest.retain(|(time, _)| *time > 0);
    longest.sort_by_key(|(time, _)| Reverse(*time));
    let mut room = usize::from(place.width);
    let fits = |family: &Family| {
        let left = room.checked_sub(width(*family));
        room = left.unwrap_or(room);
        left.is_some()
    };
    let mut shown: Vec<Family> = longest.into_iter().map(|(_, family)| family).filter(fits).collect();
    // In one order, so that it stays where it is while one looks around.
    shown.sort_by_key(|family| *family as usize);
    let mut line = Line::from_iter(shown.into_iter().flat_map(entry));
    let small = Span::styled("  lowercase: less than half of the time", theme.quiet());
    if !theme.has_colors() && line.width() + small.width() <= usize::from(place.width) {
        line.push_span(small);
    }
    say(buffer, place, line);
}
