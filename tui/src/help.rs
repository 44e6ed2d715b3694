//! What keys do, over what is seen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Widget},
};

use crate::{
    keys::{self, Binding},
    theme::Theme,
    view::View,
    views::bindings,
    widgets::{centered, row, say},
};

/// Draws it in the middle of an area.
pub(crate) fn draw(view: View, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    // What is particular comes first, if there is not room for all.
    let own = bindings(view);
    let mut lines = Vec::new();
    if !own.is_empty() {
        lines.push(heading(view.title(), theme));
        lines.extend(own.iter().map(|binding| line(binding, theme)));
        lines.push(Line::default());
    }
    lines.extend([heading("In every view", theme), numbers(theme)]);
    lines.extend(keys::left_everywhere(own).map(|binding| line(binding, theme)));
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
    Line::from(vec![Span::styled(keys, theme.strong()), Span::raw("open that view")])
}

fn line(binding: &Binding, theme: &Theme) -> Line<'static> {
    Line::from(vec![Span::styled(format!(" {:>12}  ", binding.names()), theme.strong()), Span::raw(binding.long)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;

    #[test]
    fn keys_of_a_view_stand_under_its_name() {
        let area = Rect::new(0, 0, 100, 50);
        let mut buffer = Buffer::empty(area);
        draw(View::Kernels, &Theme::new(ThemeName::Plain), area, &mut buffer);
        let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let text: String = (0..area.height).map(|y| line(y) + "\n").collect();
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
