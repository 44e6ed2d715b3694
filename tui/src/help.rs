//! What keys do, over what is seen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Widget},
};

use crate::{
    keys::{Binding, EVERYWHERE},
    theme::Theme,
    views::View,
    widgets::{row, say},
};

/// Draws it in the middle of an area.
pub(crate) fn draw(view: View, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut lines = vec![heading("In every view", theme), numbers(theme)];
    let everywhere = EVERYWHERE.iter().filter(|binding| !binding.is_taken_by(view.bindings()));
    lines.extend(everywhere.map(|binding| line(binding, theme)));
    if !view.bindings().is_empty() {
        lines.push(Line::default());
        lines.push(heading(view.title(), theme));
        lines.extend(view.bindings().iter().map(|binding| line(binding, theme)));
    }
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let place = centered(area, width, lines.len() as u16 + 2);
    Clear.render(place, buffer);
    let block = Block::bordered().border_type(BorderType::Rounded).title(" keys ").border_style(theme.title());
    let inner = block.inner(place);
    block.render(place, buffer);
    for (index, line) in lines.into_iter().enumerate() {
        say(buffer, row(inner, index as u16), line);
    }
}

fn heading(words: &'static str, theme: &Theme) -> Line<'static> {
    Line::styled(format!(" {words}"), theme.title())
}

fn numbers(theme: &Theme) -> Line<'static> {
    let keys = format!(" {:>12}  ", format!("1 to {}", View::ALL.len()));
    Line::from(vec![Span::styled(keys, theme.strong()), Span::raw("the view of that number")])
}

fn line(binding: &Binding, theme: &Theme) -> Line<'static> {
    Line::from(vec![Span::styled(format!(" {:>12}  ", binding.names()), theme.strong()), Span::raw(binding.long)])
}

/// A place of this size in the middle of an area, or as much of it as there is.
pub(crate) fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
