//! Pieces that views are made of. None of them draws outside of its place, however small that is.

mod columns;
mod cursor;
mod curve;
#[cfg(test)]
pub(crate) mod cut;
mod memory_parts;
mod meter;
mod scroll;
mod table;
mod time_axis;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::Widget,
};

pub(crate) use columns::{Columns, EIGHTHS, Part};
pub(crate) use cursor::Cursor;
pub(crate) use curve::draw_curve;
pub(crate) use memory_parts::memory_parts;
pub(crate) use meter::{draw_parts, parts_line};
pub(crate) use scroll::Scroll;
pub(crate) use table::{Column, Side, Table};
pub(crate) use time_axis::draw_time_axis;

/// A line of an area, counted from its top; nothing below its end.
pub(crate) fn row(area: Rect, line: u16) -> Rect {
    if line < area.height { Rect { y: area.y + line, height: 1, ..area } } else { Rect { height: 0, ..area } }
}

/// What is left of an area without its first lines.
pub(crate) fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

/// What is left of an area without its first columns.
pub(crate) fn right_of(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

/// Writes a line into a place, from its left end.
pub(crate) fn say<'a>(buffer: &mut Buffer, place: Rect, line: impl Into<Line<'a>>) {
    let line = line.into();
    #[cfg(test)]
    cut::note(&line, place);
    line.render(place, buffer);
}

/// Writes a line into a place, up to its right end.
pub(crate) fn say_right<'a>(buffer: &mut Buffer, place: Rect, line: impl Into<Line<'a>>) {
    let line = line.into();
    #[cfg(test)]
    cut::note(&line, place);
    // What is left of it keeps its looks: a line has its style over all of its place.
    let free = place.width.saturating_sub(line.width() as u16);
    #[cfg(test)]
    cut::note_overlap(&line, right_of(place, free), buffer);
    line.right_aligned().render(right_of(place, free), buffer);
}

/// Writes two lines beside each other: the one on the right only where there is room for both.
pub(crate) fn say_both<'a>(buffer: &mut Buffer, place: Rect, left: Line<'a>, right: Line<'a>) {
    let both = left.width() + 1 + right.width();
    say(buffer, place, left);
    if both <= place.width.into() {
        say_right(buffer, place, right);
    }
}

/// As many pieces of a line as there is room for: what does not fit is left out as a whole, and so is what comes after it.
pub(crate) fn fitting(pieces: impl IntoIterator<Item = Span<'static>>, width: u16) -> Line<'static> {
    let mut room = usize::from(width);
    let fits = |piece: &Span<'static>| {
        let left = room.checked_sub(piece.width());
        room = left.unwrap_or(0);
        left.is_some()
    };
    Line::from_iter(pieces.into_iter().take_while(fits))
}

/// A place of this size in the middle of an area, or as much of it as there is.
pub(crate) fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_beside_another_is_left_out() {
        let said = |width| {
            let place = Rect::new(0, 0, width, 1);
            let mut buffer = Buffer::empty(place);
            say_both(&mut buffer, place, "Step 59".into(), "forward".into());
            (0..width).map(|x| buffer[(x, 0)].symbol()).collect::<String>()
        };
        assert_eq!(said(16), "Step 59  forward");
        assert_eq!(said(15), "Step 59 forward");
        assert_eq!(said(14), "Step 59       ");
    }
}
