//! One device over time: a line for each counter.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::DeviceFigures;

use super::counters::{COUNTERS, Counter};
use crate::{
    scene::Scene,
    widgets::{below, draw_curve, right_of, row, say},
};

/// How wide the figures of a counter are, and what is between them and its curve.
const FIGURES: u16 = NAME as u16 + 2 * 11;
/// How wide the least and the most of it are, from this width on.
const RANGE: usize = 25;
const WITH_RANGE: u16 = 100;
/// From this width on counters stand in two columns.
const WIDE: u16 = 160;

/// How many lines it has, of so many, beside so many devices.
pub(super) fn height(lines: u16, devices: usize) -> u16 {
    let table = u16::try_from(devices).unwrap_or(u16::MAX).saturating_add(3);
    lines.saturating_sub(table).max(lines / 2)
}

pub(super) fn draw(scene: &Scene<'_>, device: &DeviceFigures, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let known: Vec<&Counter> = COUNTERS.iter().filter(|counter| device.counters.contains_key(counter.name)).collect();
    let over = format!(" Device of rank {}", device.rank);
    let columns = if area.width >= WIDE { 2 } else { 1 };
    let width = area.width / columns as u16;
    let range = if width >= WITH_RANGE { "range" } else { "" };
    let header = format!("{:>11}{:>11}  {range}", "now", "mean");
    let title = vec![Span::styled(format!("{over:<NAME$}"), theme.title()), Span::styled(header, theme.quiet())];
    say(buffer, row(area, 0), Line::from(title));
    let body = below(area, 1);
    let per_column = known.len().div_ceil(columns).max(1);
    // A curve has more lines where there is room.
    let lines = (usize::from(body.height) / per_column).clamp(1, 3) as u16;
    for (index, counter) in known.into_iter().enumerate() {
        let (column, line) = (index / per_column, index % per_column);
        let place = below(
            Rect { x: body.x + column as u16 * width, width: width.saturating_sub(1), ..body },
            line as u16 * lines,
        );
        draw_counter(scene, device, counter, Rect { height: place.height.min(lines), ..place }, buffer);
    }
}

/// How wide a name is.
const NAME: usize = 24;

fn draw_counter(scene: &Scene<'_>, device: &DeviceFigures, counter: &Counter, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let Some(figures) = device.counters.get(counter.name) else { return };
    let range = format!("  {} to {}", counter.written(figures.least), counter.written(figures.most));
    let (range, figures_width) = if place.width >= WITH_RANGE {
        (format!("{range:<RANGE$}"), FIGURES + RANGE as u16)
    } else {
        (String::new(), FIGURES)
    };
    let spans = [
        Span::raw(format!(" {:<width$}", counter.title, width = NAME - 1)),
        Span::styled(format!("{:>11}", counter.written(figures.last)), theme.strong()),
        Span::raw(format!("{:>11}", counter.written(figures.mean))),
        Span::styled(range, theme.quiet()),
    ];
    say(buffer, row(place, 0), Line::from(spans.to_vec()));
    let values = device.over_time.get(counter.name).map_or(&[][..], Vec::as_slice);
    if values.len() < 2 || figures.least >= figures.most {
        return;
    }
    let style = if counter.is_share() { theme.title() } else { theme.quiet() };
    draw_curve(buffer, right_of(place, figures_width + 1), values, style);
}
