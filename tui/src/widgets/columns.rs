//! Columns of parts on top of each other, an eighth of a line at a time; without colors, in letters.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::theme::{Mark, Theme};

/// A part of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) mark: Mark,
    pub(crate) amount: f64,
}

/// Where columns stand, and how high what is full is.
pub(crate) struct Columns<'a> {
    pub(crate) theme: &'a Theme,
    pub(crate) area: Rect,
    /// The amount that reaches the top.
    pub(crate) full: f64,
}

/// Parts of a line, from the bottom, in eighths.
pub(crate) const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Columns<'_> {
    /// Draws one column of the first of these parts at the bottom, so many cells from the left, so many wide. What is
    /// higher than the top is cut off there.
    pub(crate) fn draw(&self, buffer: &mut Buffer, from: u16, width: u16, parts: &[Part]) {
        let tops = self.tops(parts);
        for line in 0..self.area.height {
            let Some((glyph, style)) = self.cell(parts, &tops, line) else { continue };
            for column in from..from.saturating_add(width).min(self.area.width) {
                let place = (self.area.x + column, self.area.y + self.area.height - 1 - line);
                if let Some(cell) = buffer.cell_mut(place) {
                    cell.set_char(glyph).set_style(style);
                }
            }
        }
    }

    /// Says of a column that it would reach beyond the top.
    pub(crate) fn draw_beyond(&self, buffer: &mut Buffer, column: u16) {
        let place = (self.area.x + column, self.area.y);
        if let Some(cell) = buffer.cell_mut(place).filter(|_| self.area.contains(place.into())) {
            let color = cell.fg;
            cell.set_char('▲').set_style(self.theme.letter_on(color));
        }
    }

    /// Where each part ends, in eighths of a line from the bottom. Rounding the sums and not the parts, no error adds up.
    fn tops(&self, parts: &[Part]) -> Vec<u32> {
        let most = u32::from(self.area.height) * 8;
        let mut sum = 0.0;
        let top = |part: &Part| {
            sum += part.amount.max(0.0);
            let share = if self.full > 0.0 { sum / self.full } else { 0.0 };
            ((share * f64::from(most)).round() as u32).min(most)
        };
        parts.iter().map(top).collect()
    }

    /// What stands in a line, counted from the bottom.
    fn cell(&self, parts: &[Part], tops: &[u32], line: u16) -> Option<(char, Style)> {
        let (bottom, top) = (u32::from(line) * 8, u32::from(line) * 8 + 8);
        // How many eighths of this line each part has, from the bottom.
        let mut here: Vec<(Mark, u32)> = Vec::new();
        let mut from = 0;
        for (part, to) in parts.iter().zip(tops) {
            let eighths = (*to).min(top).saturating_sub(from.max(bottom));
            if eighths > 0 {
                here.push((part.mark, eighths));
            }
            from = *to;
        }
        let all: u32 = here.iter().map(|(_, eighths)| eighths).sum();
        if !self.theme.has_colors() {
            // A letter stands for its line where its part has most of it, and half of the line or more is something.
            let (mark, _) = here.iter().max_by_key(|(_, eighths)| *eighths)?;
            return (all >= 4).then(|| self.theme.filled(*mark));
        }
        let &(lower, eighths) = here.first()?;
        // A cell has two colors: of more parts, the largest of the others is seen.
        let upper = here[1..].iter().max_by_key(|(_, eighths)| *eighths);
        match upper {
            None => Some((EIGHTHS[eighths as usize], Style::new().fg(lower.color))),
            Some((upper, _)) if all == 8 => {
                Some((EIGHTHS[eighths as usize], Style::new().fg(lower.color).bg(upper.color)))
            }
            // Two parts and nothing above them are three colors: the larger part is seen.
            Some((upper, more)) => {
                let color = if *more > eighths { upper.color } else { lower.color };
                Some((EIGHTHS[all as usize], Style::new().fg(color)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;
    use stepscope_analyzer::Class;

    fn drawn(name: ThemeName, amounts: [f64; 3], full: f64) -> Vec<char> {
        let theme = Theme::new(name);
        let classes = [Class::Compute, Class::Communication, Class::Copy];
        let parts: Vec<Part> =
            classes.iter().zip(amounts).map(|(class, amount)| Part { mark: theme.class(*class), amount }).collect();
        let area = Rect::new(0, 0, 1, 4);
        let mut buffer = Buffer::empty(area);
        Columns { theme: &theme, area, full }.draw(&mut buffer, 0, 1, &parts);
        (0..4).rev().map(|y| buffer[(0, y)].symbol().chars().next().unwrap()).collect()
    }

    #[test]
    fn parts_stand_on_each_other() {
        assert_eq!(drawn(ThemeName::Dark, [2.0, 1.0, 0.5], 4.0), ['█', '█', '█', '▄']);
        assert_eq!(drawn(ThemeName::Dark, [1.5, 1.5, 0.0], 4.0), ['█', '▄', '█', ' ']);
        assert_eq!(drawn(ThemeName::Plain, [2.0, 1.0, 0.6], 4.0), ['C', 'C', 'N', 'M']);
        assert_eq!(drawn(ThemeName::Plain, [2.0, 0.3, 0.0], 4.0), ['C', 'C', ' ', ' ']);
    }

    #[test]
    fn what_is_too_high_is_cut_off_and_nothing_is_nothing() {
        assert_eq!(drawn(ThemeName::Dark, [9.0, 1.0, 1.0], 4.0), ['█'; 4]);
        assert_eq!(drawn(ThemeName::Dark, [0.0; 3], 4.0), [' '; 4]);
        assert_eq!(drawn(ThemeName::Dark, [1.0; 3], 0.0), [' '; 4]);
        assert_eq!(drawn(ThemeName::Dark, [f64::NAN, -1.0, 2.0], 4.0), ['█', '█', ' ', ' ']);
    }
}
