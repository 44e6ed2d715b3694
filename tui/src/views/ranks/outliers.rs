//! The ranks that stand out in a figure, in words.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::Spread;
use stepscope_plan::text;

use super::figure::{RankCell, RankFigure};
use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// The ranks that stand out, in words.
pub(super) fn draw(
    scene: &Scene<'_>,
    figure: RankFigure,
    spread: &Spread,
    cells: &[RankCell],
    area: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let titles = [format!("Outliers in {}", figure.name()), "Outliers".into()];
    let title = titles.into_iter().find(|title| title.len() <= area.width.into()).unwrap_or_default();
    say(buffer, row(area, 0), Line::styled(title, theme.title()));
    let body = below(area, 1);
    let median = spread.median.unwrap_or(0.0);
    if spread.outliers.is_empty() {
        let words = match spread.range {
            None => figure.why_unknown(scene).to_owned(),
            Some(_) if cells.len() == 1 => "there is only one rank".into(),
            Some(_) => {
                let values = || cells.iter().filter_map(|cell| figure.of(cell));
                let ends = [values().fold(median, f64::min), values().fold(median, f64::max)];
                match ends.map(|end| figure.written(end)) {
                    [least, most] if least == most => format!("none: all ranks are at {least}"),
                    [least, most] => format!("none: {least} to {most}"),
                }
            }
        };
        for (line, words) in text::wrapped(&words, area.width.max(1).into()).into_iter().enumerate() {
            say(buffer, row(body, line as u16), Line::styled(words, theme.quiet()));
        }
        return;
    }
    let room = usize::from(body.height).max(1);
    let shown = if spread.outliers.len() > room { room - 1 } else { room };
    for (line, rank) in spread.outliers.iter().take(shown).enumerate() {
        let value = cells.iter().find(|cell| cell.rank == *rank).and_then(|cell| figure.of(cell)).unwrap_or(0.0);
        let change = text::whole_percent(value / median - 1.0);
        let words = match median > 0.0 {
            true => [format!(", {change} above the median"), format!(", +{change}")],
            false => [", most ranks have none".into(), ", most: 0".into()],
        };
        let mut outlier = Line::from(vec![
            Span::styled(format!("! rank {rank}"), theme.bad()),
            Span::raw(format!("  {}", figure.written(value))),
        ]);
        // In as many words as there is room for.
        let room = usize::from(area.width).saturating_sub(outlier.width());
        let words = words.into_iter().find(|words| words.chars().count() <= room);
        outlier.extend(words.map(|words| Span::styled(words, theme.quiet())));
        say(buffer, row(body, line as u16), outlier);
    }
    let hidden = spread.outliers.len().saturating_sub(shown);
    if hidden > 0 {
        say(buffer, row(body, shown as u16), Line::styled(format!("and {hidden} more"), theme.warning()));
    }
}
