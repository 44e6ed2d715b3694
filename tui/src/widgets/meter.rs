//! Parts beside each other on one line.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{Part, say};
use crate::theme::Theme;

/// Draws parts beside each other; `full` would fill the place.
pub(crate) fn draw_parts(buffer: &mut Buffer, place: Rect, theme: &Theme, parts: &[Part], full: f64) {
    say(buffer, place, parts_line(theme, parts, full, place.width));
}

/// The same, as a line of text: each part has its letter in it, where there is room.
pub(crate) fn parts_line(theme: &Theme, parts: &[Part], full: f64, width: u16) -> Line<'static> {
    let (mut sum, mut from) = (0.0, 0);
    let mut spans = Vec::new();
    for part in parts {
        sum += part.amount.max(0.0);
        let share = if full > 0.0 { (sum / full).min(1.0) } else { 0.0 };
        let to = (share * f64::from(width)).round() as usize;
        let cells = to.saturating_sub(from);
        from = to.max(from);
        if cells == 0 {
            continue;
        }
        let (glyph, style) = theme.filled(part.mark);
        if theme.has_colors() && cells >= 3 {
            spans.push(Span::styled(format!("{:^cells$}", part.mark.letter), theme.letter_on(part.mark.color)));
        } else {
            spans.push(Span::styled(glyph.to_string().repeat(cells), style));
        }
    }
    Line::from(spans)
}
