//! A curve in dots, two by four in each cell.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

/// The dots of a cell, by line and column.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// A cell without dots.
const NO_DOTS: u32 = 0x2800;

/// Draws values from left to right, over the width of the area, between the least and the most of them; gives those. Of
/// more values than there are columns of dots, each column shows the mean of its own; few are joined by straight lines.
pub(crate) fn draw_curve(buffer: &mut Buffer, area: Rect, values: &[f64], style: Style) -> Option<(f64, f64)> {
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let (least, most) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
    let (width, height) = (usize::from(area.width) * 2, usize::from(area.height) * 4);
    if width == 0 || height == 0 {
        return Some((least, most));
    }
    let mut cells = vec![0_u32; usize::from(area.width) * usize::from(area.height)];
    let mut before: Option<usize> = None;
    for x in 0..width {
        let Some(value) = value_at(values, x, width) else {
            before = None;
            continue;
        };
        let share = if most > least { (value - least) / (most - least) } else { 0.5 };
        let line = ((1.0 - share) * (height - 1) as f64).round() as usize;
        // The dots between two columns belong to the later one.
        let (low, high) = match before {
            Some(before) if before + 1 < line => (before + 1, line),
            Some(before) if line + 1 < before => (line, before - 1),
            _ => (line, line),
        };
        for y in low..=high {
            cells[y / 4 * usize::from(area.width) + x / 2] |= DOTS[y % 4][x % 2];
        }
        before = Some(line);
    }
    for (index, dots) in cells.into_iter().enumerate().filter(|(_, dots)| *dots > 0) {
        let (x, y) = (index % usize::from(area.width), index / usize::from(area.width));
        let place = (area.x + x as u16, area.y + y as u16);
        if let (Some(cell), Some(glyph)) = (buffer.cell_mut(place), char::from_u32(NO_DOTS + dots)) {
            cell.set_char(glyph).set_style(style);
        }
    }
    Some((least, most))
}

/// What a column of dots shows, of so many.
fn value_at(values: &[f64], column: usize, columns: usize) -> Option<f64> {
    if values.len() >= columns {
        let (from, to) = (column * values.len() / columns, (column + 1) * values.len() / columns);
        let here: Vec<f64> = values[from..to].iter().copied().filter(|value| value.is_finite()).collect();
        return (!here.is_empty()).then(|| here.iter().sum::<f64>() / here.len() as f64);
    }
    let place = column as f64 * (values.len().saturating_sub(1)) as f64 / (columns - 1).max(1) as f64;
    let (left, right) = (*values.get(place.floor() as usize)?, *values.get(place.ceil() as usize)?);
    Some(left + (right - left) * place.fract()).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &[f64]) -> String {
        let area = Rect::new(0, 0, 4, 1);
        let mut buffer = Buffer::empty(area);
        draw_curve(&mut buffer, area, values, Style::new());
        (0..4).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
    }

    #[test]
    fn a_curve_goes_from_corner_to_corner() {
        assert_eq!(drawn(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), "⣀⠤⠒⠉");
        assert_eq!(drawn(&[5.0; 8]), "⠤⠤⠤⠤");
        assert_eq!(drawn(&[]), "    ");
        assert_eq!(drawn(&[f64::NAN; 3]), "    ");
    }

    #[test]
    fn few_values_take_all_of_the_width() {
        assert_eq!(drawn(&[0.0, 7.0]), drawn(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
        assert_eq!(drawn(&[1.0]), "⠤⠤⠤⠤");
    }
}
