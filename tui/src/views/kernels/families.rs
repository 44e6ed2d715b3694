//! All kernels in one bar, by what kind of work they are.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_plan::text;
use stepscope_traces::Family;

use crate::{
    scene::Scene,
    widgets::{Part, draw_parts, row, say},
};

/// Lines of it.
pub(super) const HEIGHT: u16 = 2;

/// Draws the bar, and below it what its letters mean, as many as there is room for.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let families = scene.snapshot.analysis.as_ref().map_or(&[][..], |analysis| &analysis.families);
    let parts: Vec<Part> =
        families.iter().map(|family| Part { mark: theme.family(family.family), amount: family.share }).collect();
    let bar = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..row(area, 0) };
    draw_parts(buffer, bar.intersection(area), theme, &parts, 1.0);
    let mut spans = Vec::new();
    let mut room = usize::from(area.width);
    for family in families {
        let mark = theme.family(family.family);
        let words = format!(" {} {}", family.family.word(), text::percent(family.share));
        // What else there is waits for memory, not for arithmetic.
        let computes = matches!(family.family, Family::Matmul | Family::Attention);
        let of_peak = family.peak_share.filter(|_| computes);
        let of_peak = of_peak.map(|share| format!(" at {} of peak", text::percent(share)));
        let words = [Span::raw(words), Span::styled(of_peak.unwrap_or_default(), theme.quiet())];
        let letter = Span::styled(format!(" {}", mark.letter), theme.filled(mark).1);
        let width = letter.width() + words.iter().map(Span::width).sum::<usize>();
        match room.checked_sub(width + 1) {
            Some(left) => room = left,
            None => break,
        }
        spans.push(letter);
        spans.extend(words);
        spans.push(Span::raw(" "));
    }
    say(buffer, row(area, 1), Line::from(spans));
}
