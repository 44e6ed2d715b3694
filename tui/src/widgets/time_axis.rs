//! Times above something that goes from left to right.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use stepscope_plan::text;

use super::{right_of, say};
use crate::theme::Theme;

/// How far times are apart at least, in cells.
const APART: i64 = 14;

/// Draws times since the left end, of a place that is so many nanoseconds long.
pub(crate) fn draw_time_axis(buffer: &mut Buffer, place: Rect, theme: &Theme, length: i64) {
    let (cells, length) = (i64::from(place.width), length.max(1));
    if cells < APART {
        return;
    }
    let every = round_above((length / (cells / APART)).max(1));
    for tick in 0..=length / every {
        let cell = (i128::from(tick * every) * i128::from(cells) / i128::from(length)) as u16;
        let words = format!("│{}", if tick == 0 { "0".into() } else { text::duration(tick * every) });
        // One that is cut off says nothing.
        if cell + words.chars().count() as u16 <= place.width {
            say(buffer, right_of(place, cell), Line::styled(words, theme.quiet()));
        }
    }
}

/// A number of nanoseconds that reads well and is at least so large: 1, 2 or 5 and zeros.
fn round_above(least: i64) -> i64 {
    let mut power = 1_i64;
    loop {
        for step in [1, 2, 5] {
            let round = power.saturating_mul(step);
            if round >= least || round == i64::MAX {
                return round;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!([1, 2, 3, 7, 11, 480, 501].map(round_above), [1, 2, 5, 10, 20, 500, 1_000]);
        assert_eq!(round_above(i64::MAX), i64::MAX);
    }
}
