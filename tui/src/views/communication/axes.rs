//! How much of the communication along each axis compute hides.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{AxisShare, Class};
use stepscope_plan::text;

use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// Draws a line for each axis; says how many lines there are.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) -> u16 {
    let theme = scene.theme;
    let Some(analysis) = &scene.snapshot.analysis else { return 0 };
    let ranks = analysis.counted.iter().filter(|rank| scene.focus.is_none_or(|focus| focus == rank.rank));
    let axes = AxisShare::sum(ranks.flat_map(|rank| &rank.breakdown.axes));
    let of = scene.focus.map_or_else(String::new, |rank| format!(" on rank {rank}"));
    say(buffer, row(area, 0), Line::styled(format!(" Overlap with compute by axis{of}"), theme.title()));
    if axes.is_empty() {
        say(buffer, row(area, 1), Line::styled(" no communication in these steps", theme.quiet()));
        return 2;
    }
    let bar = usize::from(area.width).saturating_sub(WORDS).min(60);
    // What is hidden is there, and costs nothing.
    let (hidden_glyph, hidden_style) = match theme.filled(theme.class(Class::Compute)) {
        (_, style) if theme.has_colors() => ('░', style),
        letter => letter,
    };
    let (exposed_glyph, exposed_style) = theme.filled(theme.class(Class::Communication));
    for (line, along) in axes.iter().enumerate() {
        let share = along.overlap();
        let hidden = ((share * bar as f64).round() as usize).min(bar);
        let exposed = text::duration(along.exposed_ns);
        let name = along.axis.map_or("unknown", |axis| axis.brief_name());
        // What nothing hides is what a step takes longer for.
        let style = if share < 0.5 { theme.warning() } else { theme.quiet() };
        let spans = vec![
            Span::raw(format!(" {name:<9} {:>6} ", text::percent(share))),
            Span::styled(hidden_glyph.to_string().repeat(hidden), hidden_style),
            Span::styled(exposed_glyph.to_string().repeat(bar - hidden), exposed_style),
            Span::styled(format!(" {exposed:>8} exposed"), style),
        ];
        say(buffer, row(below(area, 1), line as u16), Line::from(spans));
    }
    1 + axes.len() as u16
}

/// How wide what stands around a bar is.
const WORDS: usize = 36;
