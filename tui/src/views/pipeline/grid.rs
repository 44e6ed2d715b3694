//! Stages, one below the other: which micro-batch each works on when, and where it has nothing to do.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Style},
    text::Line,
};
use stepscope_analyzer::{Pass, WorkItem};
use stepscope_traces::Window;

use crate::{
    theme::Theme,
    views::stretch,
    widgets::{right_of, say},
};

/// How wide the names beside the stages are.
pub(super) const NAMES: u16 = 19;

/// Draws what one stage does in a part of the time from the first to the last work of any.
pub(super) fn draw_stage(
    buffer: &mut Buffer,
    place: Rect,
    theme: &Theme,
    name: &str,
    items: &[WorkItem],
    (window, all): (Window, Window),
) {
    say(buffer, Rect { height: 1, width: NAMES.min(place.width), ..place }, Line::raw(name.to_owned()));
    let place = right_of(place, NAMES);
    let bubble = if theme.has_colors() { '░' } else { '.' };
    if let Some(cells) = stretch::cells(window, (all.from.0, all.to.0), place.width) {
        fill(buffer, part(place, cells), bubble, theme.quiet());
    }
    for item in items {
        if let Some(cells) = stretch::cells(window, (item.start, item.end), place.width) {
            draw_item(buffer, part(place, cells), theme, item);
        }
    }
}

fn part(place: Rect, (from, to): (u16, u16)) -> Rect {
    Rect { x: place.x + from, width: to - from, ..place }
}

fn fill(buffer: &mut Buffer, place: Rect, glyph: char, style: Style) {
    for position in place.positions() {
        if let Some(cell) = buffer.cell_mut(position) {
            cell.set_char(glyph).set_style(Style::reset()).set_style(style);
        }
    }
}

/// A pass, with the number of its micro-batch where there is room for it.
fn draw_item(buffer: &mut Buffer, place: Rect, theme: &Theme, item: &WorkItem) {
    let mark = theme.pass(item.pass, item.micro_batch.0 % 2 == 0);
    let width = usize::from(place.width);
    let middle = Rect { y: place.y + place.height.saturating_sub(1) / 2, height: 1.min(place.height), ..place };
    if theme.has_colors() {
        let style = Style::new().fg(Color::Indexed(16)).bg(mark.color);
        fill(buffer, place, ' ', style);
        let names = [format!("{}{}", mark.letter, item.micro_batch), item.micro_batch.to_string()];
        if let Some(name) = names.iter().find(|name| name.len() <= width) {
            say(buffer, middle, Line::styled(format!("{name:^width$}"), style));
        }
        return;
    }
    let line = match item.pass {
        Pass::Forward => '=',
        Pass::Backward => '-',
        Pass::Weights => '~',
    };
    let name = format!("{}{}", mark.letter, item.micro_batch);
    // A number that is cut is another number.
    let name = if name.len() <= width { name } else { mark.letter.to_string() };
    fill(buffer, place, line, Style::new());
    say(buffer, middle, Line::raw(name));
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{MicroBatch, Nanos, Step};

    use super::*;
    use crate::theme::ThemeName;

    #[test]
    fn numbers_are_whole_and_bubbles_are_seen() {
        let item =
            |number, pass, start, end| WorkItem { step: Step(0), micro_batch: MicroBatch(number), pass, start, end };
        let items = [
            item(7, Pass::Forward, 0, 40),
            item(12, Pass::Forward, 40, 60),
            item(7, Pass::Backward, 100, 160),
            item(8, Pass::Backward, 170, 174),
            item(7, Pass::Weights, 180, 200),
        ];
        let all = Window { from: Nanos(0), to: Nanos(200) };
        let area = Rect::new(0, 0, NAMES + 20, 1);
        let mut buffer = Buffer::empty(area);
        draw_stage(&mut buffer, area, &Theme::new(ThemeName::Plain), "stage 0", &items, (all, all));
        let drawn: String = (NAMES..area.width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect();
        assert_eq!(drawn, "F7==F=....B7----.BW7");
    }
}
