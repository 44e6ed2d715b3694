//! What keys do, over what is seen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Widget},
};

use crate::{
    keys::{self, Binding},
    theme::{Theme, ThemeName},
    view::View,
    views::bindings,
    widgets::{centered, row, say},
};

/// The lines above and below.
const BORDERS: u16 = 2;

/// Draws it in the middle of an area, from a line on.
pub(crate) fn draw((view, first): (View, usize), theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lines = lines(view, theme);
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let place = centered(area, width, lines.len() as u16 + BORDERS);
    Clear.render(place, buffer);
    let first = first.min(last_first(view, area));
    let left = lines.len() - first;
    let mut block = Block::bordered().border_type(BorderType::Rounded).title(" keys ").border_style(theme.title());
    if let Some(below) = left.checked_sub(place.height.saturating_sub(BORDERS).into()).filter(|below| *below > 0) {
        block = block.title_bottom(Line::from(format!(" ↓ {below} more ")).right_aligned());
    }
    if first > 0 {
        block = block.title_top(Line::from(format!(" ↑ {first} more ")).right_aligned());
    }
    let inner = block.inner(place);
    block.render(place, buffer);
    for (index, line) in lines.into_iter().skip(first).enumerate() {
        say(buffer, row(inner, index as u16), line);
    }
}

/// The line that it begins with when all of its end is seen.
pub(crate) fn last_first(view: View, area: Rect) -> usize {
    lines(view, &Theme::new(ThemeName::Plain)).len().saturating_sub(area.height.saturating_sub(BORDERS).into())
}

/// What is particular comes first.
fn lines(view: View, theme: &Theme) -> Vec<Line<'static>> {
    let own = bindings(view);
    let mut lines = Vec::new();
    if !own.is_empty() {
        lines.push(heading(view.title(), theme));
        lines.extend(own.iter().map(|binding| bound(binding, theme)));
        lines.push(Line::default());
    }
    let numbers = format!("1 to {}", View::ALL.len());
    lines.extend([heading("In every view", theme), line(&numbers, "open that view", theme)]);
    lines.extend(keys::left_everywhere(own).map(|binding| bound(binding, theme)));
    lines.push(line("ctrl-z", "stop until `fg`", theme));
    lines
}

fn heading(words: &'static str, theme: &Theme) -> Line<'static> {
    Line::styled(format!(" {words}"), theme.title())
}

fn bound(binding: &Binding, theme: &Theme) -> Line<'static> {
    line(&binding.names(), binding.long, theme)
}

fn line(keys: &str, does: &'static str, theme: &Theme) -> Line<'static> {
    Line::from(vec![Span::styled(format!(" {keys:>12}  "), theme.strong()), Span::raw(does)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(view: View, first: usize, area: Rect) -> String {
        let mut buffer = Buffer::empty(area);
        draw((view, first), &Theme::new(ThemeName::Plain), area, &mut buffer);
        let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..area.height).map(|y| line(y) + "\n").collect()
    }

    #[test]
    fn what_has_no_room_is_scrolled_to() {
        let area = Rect::new(0, 0, 80, 24);
        let (top, last) = (shown(View::Timeline, 0, area), last_first(View::Timeline, area));
        assert!(
            last > 0 && top.contains(&format!("↓ {last} more")) && !top.lines().next().unwrap().contains('↑'),
            "{top}"
        );
        let bottom = shown(View::Timeline, usize::MAX, area);
        assert!(bottom.contains(&format!("↑ {last} more")) && bottom.contains("quit"), "{bottom}");
        assert!(!bottom.lines().last().unwrap().contains('↓'), "{bottom}");
    }

    #[test]
    fn keys_of_a_view_stand_under_its_name() {
        let area = Rect::new(0, 0, 100, 50);
        let text = shown(View::Kernels, 0, area);
        let (own, everywhere) = text.split_once("In every view").unwrap();
        assert!(own.contains("Kernels"), "{text}");
        for binding in bindings(View::Kernels) {
            assert!(own.contains(binding.long) && !everywhere.contains(binding.long), "{}: {text}", binding.long);
        }
        for words in ["open that view", "next view", "show only the previous rank", "quit"] {
            assert!(everywhere.contains(words) && !own.contains(words), "{words}: {text}");
        }
        // The list has taken these keys.
        assert!(!text.contains("select the first step"), "{text}");
    }
}
