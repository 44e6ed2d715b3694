//! Columns beside each other; where there is no room for all, those that matter least are left out.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Color,
    text::{Line, Span},
};

use super::{row, say, say_right};
use crate::theme::{Theme, is_block};

/// A column.
pub(crate) struct Column {
    pub(crate) header: &'static str,
    /// How wide it is; of the one that grows, at least.
    pub(crate) width: u16,
    pub(crate) side: Side,
    /// Those with the highest number are left out first; of those with one number, the last. The first column and the
    /// one that grows stay.
    pub(crate) left_out: u8,
}

/// Where what is in a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Words, in all room that is left.
    Grows,
}

/// Columns, as there is room for them.
pub(crate) struct Table<'a> {
    theme: &'a Theme,
    columns: &'a [Column],
    /// Where each column begins, and how wide it is; none of those that are left out.
    places: Vec<Option<(u16, u16)>>,
}

impl<'a> Table<'a> {
    /// Those columns that there is something to say in, in so much room.
    pub(crate) fn new(
        theme: &'a Theme,
        columns: &'a [Column],
        has_something: impl Fn(usize) -> bool,
        width: u16,
    ) -> Table<'a> {
        let mut kept: Vec<bool> = (0..columns.len()).map(has_something).collect();
        let taken = |kept: &[bool]| -> u16 {
            let widths = columns.iter().zip(kept).filter(|(_, kept)| **kept).map(|(column, _)| column.width + 1);
            widths.sum()
        };
        while taken(&kept) > width {
            let droppable = (1..columns.len()).filter(|index| kept[*index] && columns[*index].side != Side::Grows);
            match droppable.max_by_key(|index| columns[*index].left_out) {
                Some(index) => kept[index] = false,
                None => break,
            }
        }
        let more = width.saturating_sub(taken(&kept));
        let mut x = 1;
        let place = |(column, kept): (&Column, bool)| {
            let width = column.width + if column.side == Side::Grows { more } else { 0 };
            kept.then(|| {
                x += width + 1;
                (x - width - 1, width)
            })
        };
        let places = columns.iter().zip(kept).map(place).collect();
        Table { theme, columns, places }
    }

    /// How wide a column is; nothing where it is left out.
    pub(crate) fn width(&self, column: usize) -> u16 {
        self.places.get(column).copied().flatten().map_or(0, |(_, width)| width)
    }

    /// Draws the headers; one may be marked as that by which lines are sorted.
    pub(crate) fn draw_header(&self, buffer: &mut Buffer, line: Rect, sorted: Option<usize>) {
        let header = |(index, column): (usize, &Column)| {
            let style = if sorted == Some(index) { self.theme.strong() } else { self.theme.quiet() };
            let mark = if sorted == Some(index) { "▼" } else { "" };
            Span::styled(format!("{mark}{}", column.header), style)
        };
        let headers = self.columns.iter().enumerate().map(header).map(Line::from);
        self.draw_cells(buffer, line, headers);
    }

    /// Draws a line of cells, one for each column.
    pub(crate) fn draw(&self, buffer: &mut Buffer, line: Rect, cells: Vec<Line<'static>>, is_chosen: bool) {
        self.draw_cells(buffer, line, cells.into_iter());
        if is_chosen {
            for place in line.positions() {
                let Some(cell) = buffer.cell_mut(place).filter(|cell| !is_block(cell.symbol())) else { continue };
                cell.set_style(self.theme.chosen().fg(Color::Reset).bg(Color::Reset));
            }
        }
    }

    fn draw_cells(&self, buffer: &mut Buffer, line: Rect, cells: impl Iterator<Item = Line<'static>>) {
        for ((cell, place), column) in cells.zip(&self.places).zip(self.columns) {
            let Some((x, width)) = *place else { continue };
            let place = Rect { x: line.x.saturating_add(x), width, ..row(line, 0) }.intersection(line);
            match column.side {
                Side::Right => say_right(buffer, place, cell),
                Side::Left | Side::Grows => say(buffer, place, cell),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;

    fn drawn(width: u16, has_something: fn(usize) -> bool) -> String {
        let theme = Theme::new(ThemeName::Plain);
        let column = |header, width, side, left_out| Column { header, width, side, left_out };
        let columns = [
            column("name", 6, Side::Grows, 0),
            column("count", 6, Side::Right, 1),
            column("mean", 5, Side::Right, 2),
            column("time", 5, Side::Right, 0),
        ];
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        Table::new(&theme, &columns, has_something, width).draw_header(&mut buffer, area, Some(3));
        (0..width).map(|x| buffer[(x, 0)].symbol()).collect()
    }

    #[test]
    fn what_matters_least_is_left_out_first() {
        assert_eq!(drawn(30, |_| true), " name        count  mean ▼time");
        assert_eq!(drawn(24, |_| true), " name        count ▼time");
        assert_eq!(drawn(14, |_| true), " name    ▼time");
        assert_eq!(drawn(12, |_| true), " name       ", "what does not fit is left out, and never cut");
        assert_eq!(drawn(8, |_| true), " name   ");
        assert_eq!(drawn(30, |column| column != 1), " name               mean ▼time");
    }
}
