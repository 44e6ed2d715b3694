//! One frame as text.

use std::str::FromStr;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier},
};

/// How large a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

impl Size {
    /// The largest there is a use for; and a frame is kept in memory.
    const MOST: u16 = 2000;
}

impl Default for Size {
    fn default() -> Size {
        Size { width: 120, height: 40 }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let number = |text: &str| text.trim().parse().ok().filter(|number| (1..=Size::MOST).contains(number));
        let parsed = text
            .split_once(['x', 'X', '×'])
            .and_then(|(width, height)| Some(Size { width: number(width)?, height: number(height)? }));
        parsed.ok_or_else(|| format!("a size is COLUMNSxLINES, such as 120x40, and at most {0}x{0}", Size::MOST))
    }
}

impl From<Size> for Rect {
    fn from(size: Size) -> Rect {
        Rect::new(0, 0, size.width, size.height)
    }
}

/// A frame as lines of text, with its colors as a terminal is told them.
pub(crate) fn written(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let cells: Vec<_> = (0..buffer.area.width).map(|x| &buffer[(x, y)]).collect();
        let is_blank = |cell: &&&ratatui::buffer::Cell| {
            cell.symbol() == " " && cell.bg == Color::Reset && !cell.modifier.contains(Modifier::REVERSED)
        };
        let length = cells.iter().rev().skip_while(is_blank).count();
        let mut style = String::new();
        let mut skip = 0;
        for cell in &cells[..length] {
            // The second half of what is two cells wide.
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let next = codes(cell.fg, cell.bg, cell.modifier);
            if next != style {
                text += &format!("\u{1b}[0{next}m");
                style = next;
            }
            text += cell.symbol();
            skip = ratatui::text::Span::raw(cell.symbol()).width().saturating_sub(1);
        }
        if !style.is_empty() {
            text += "\u{1b}[0m";
        }
        text.push('\n');
    }
    text
}

fn codes(fg: Color, bg: Color, modifier: Modifier) -> String {
    let mut codes = String::new();
    if let Color::Indexed(index) = fg {
        codes += &format!(";38;5;{index}");
    }
    if let Color::Indexed(index) = bg {
        codes += &format!(";48;5;{index}");
    }
    for (flag, code) in [(Modifier::BOLD, ";1"), (Modifier::REVERSED, ";7")] {
        if modifier.contains(flag) {
            codes += code;
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    #[test]
    fn sizes_are_read() {
        assert_eq!("80x24".parse(), Ok(Size { width: 80, height: 24 }));
        for text in ["", "80", "80x", "0x24", "80x99999", "-1x5", "axb"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_frame_has_its_colours_and_no_blanks_at_its_ends() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
        buffer.set_string(1, 0, "ab", Style::new().fg(Color::Indexed(32)));
        assert_eq!(written(&buffer), " \u{1b}[0;38;5;32mab\u{1b}[0m\n\n");
    }
}
