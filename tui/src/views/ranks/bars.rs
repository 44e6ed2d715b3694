//! Where a step goes on each rank, below the cells: those with most of the figure first.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, CountedTime};
use stepscope_plan::text;
use stepscope_traces::Rank;

use super::figure::{RankCell, RankFigure};
use crate::{
    scene::Scene,
    time_parts::time_parts,
    widgets::{Part, draw_parts, fitting, right_of, row, say},
};

/// From so many lines on there is room for it.
pub(super) const LEAST: u16 = 4;
/// How wide what stands before a bar is: a rank, and how long a step takes there.
const NAMES: u16 = 22;

/// Draws a bar for each rank that there is room for; the rank under the cursor is marked.
pub(super) fn draw(
    scene: &Scene<'_>,
    (analysis, cells): (&Analysis, &[RankCell]),
    (figure, cursor): (RankFigure, Option<Rank>),
    area: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let value = |rank: Rank| cells.iter().find(|cell| cell.rank == rank).and_then(|cell| figure.of(cell));
    let mut ranks: Vec<&CountedTime> = analysis.counted.iter().filter(|time| time.partition.span_ns > 0).collect();
    if ranks.is_empty() {
        return;
    }
    ranks.sort_by(|one, other| {
        let [one, other] = [one, other].map(|time| value(time.rank).unwrap_or(f64::NEG_INFINITY));
        other.total_cmp(&one)
    });
    let what = if analysis.window.whole { " Where the time goes" } else { " Where a step goes" };
    let mut legend = vec![Span::styled(what, theme.title())];
    for part in time_parts(theme) {
        let (glyph, style) = theme.filled(part.mark);
        legend.extend([Span::styled(format!("  {glyph}"), style), Span::raw(format!(" {}", part.name))]);
    }
    let order = Span::styled(format!("  most {} first", figure.name()), theme.quiet());
    legend.extend((ranks.len() > 1).then_some(order));
    say(buffer, row(area, 0), fitting(legend, area.width));
    let longest = ranks.iter().map(|time| time.mean(|partition| partition.span_ns)).max().unwrap_or(0);
    for (line, time) in (1..area.height).zip(ranks) {
        let place = row(area, line);
        let span = text::duration(time.mean(|partition| partition.span_ns));
        let words = format!(" {:<9} {span:>9} ", format!("rank {}", time.rank));
        let style = if cursor == Some(time.rank) { theme.strong() } else { theme.quiet() };
        say(buffer, Rect { width: NAMES.min(place.width), ..place }, Line::styled(words, style));
        let parts = time_parts(theme);
        let parts =
            parts.map(|part| Part { mark: part.mark, amount: time.mean(|partition| part.of(partition)) as f64 });
        draw_parts(buffer, right_of(place, NAMES), theme, &parts, longest as f64);
    }
}
