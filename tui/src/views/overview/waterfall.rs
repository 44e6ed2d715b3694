//! What takes a step, from the peak of the device to what is used of it; and how full memory is.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Class, WaterfallLine, WaterfallPart, WaterfallRow};
use stepscope_plan::text;

use crate::{
    scene::Scene,
    theme::Mark,
    widgets::{below, draw_parts, memory_parts, row, say, say_right},
};

/// How many parts of a step are told apart at most.
const MOST_PARTS: usize = 12;
/// How wide what stands beside the bars is: words, points and time.
const WORDS: usize = 28;
const POINTS: usize = 6;

fn parts(scene: &Scene<'_>) -> Vec<WaterfallLine> {
    let analysis = scene.snapshot.analysis.as_ref();
    analysis.map_or_else(Vec::new, |analysis| WaterfallRow::lines(&analysis.waterfall, MOST_PARTS))
}

/// How many lines it takes, with a free one above each part of it.
pub(super) fn height(scene: &Scene<'_>) -> u16 {
    let parts = parts(scene).len() as u16;
    let memory = if scene.memory().is_some() { 3 } else { 0 };
    memory + if parts > 0 { parts + 2 } else { 0 }
}

pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let parts = parts(scene);
    let mut rest = area;
    if !parts.is_empty() {
        let title = Line::styled("Where a step goes, in points", scene.theme.title());
        say(buffer, row(area, 1), title);
        rest = below(area, 2);
        for (index, part) in parts.iter().enumerate() {
            draw_part(scene, part, row(rest, index as u16), buffer);
        }
        rest = below(rest, parts.len() as u16);
    }
    draw_memory(scene, below(rest, 1), buffer);
}

/// A part of a step: its bar begins where that of the part before it ends.
fn draw_part(scene: &Scene<'_>, part: &WaterfallLine, place: Rect, buffer: &mut Buffer) {
    let (glyph, style) = scene.theme.filled(mark(scene, part.part));
    let room = f64::from(place.width) - (WORDS + POINTS) as f64;
    let cell = |points: f64| (points.clamp(0.0, 100.0) / 100.0 * room.max(0.0)).round() as usize;
    let (from, to) = (cell(part.from), cell(part.from + part.points));
    let line = vec![
        Span::raw(format!("{:<WORDS$} {:>4.1} ", part.words, part.points)),
        Span::raw(" ".repeat(from)),
        Span::styled(glyph.to_string().repeat(to.saturating_sub(from)), style),
    ];
    say(buffer, place, Line::from(line));
}

/// How a part of the waterfall is drawn.
fn mark(scene: &Scene<'_>, part: Option<WaterfallPart>) -> Mark {
    let theme = scene.theme;
    match part {
        Some(WaterfallPart::Kernels { family }) => theme.family(family),
        Some(WaterfallPart::Communication { .. } | WaterfallPart::Stragglers) => theme.class(Class::Communication),
        Some(WaterfallPart::Copies) => theme.class(Class::Copy),
        Some(WaterfallPart::Idle { .. } | WaterfallPart::Bubble) | None => theme.idle(),
        Some(WaterfallPart::Recomputation | WaterfallPart::Mfu) => theme.class(Class::Compute),
    }
}

/// The memory of the rank in focus, or the fullest: a bar of what it has at its peak, as long as its device.
fn draw_memory(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let Some(memory) = scene.memory().filter(|_| area.height > 1) else { return };
    say(buffer, row(area, 0), Line::styled("Memory peak", theme.title()));
    let full = scene.capacity().unwrap_or(0).max(memory.peak_bytes);
    let of = scene.capacity().map_or_else(String::new, |all| format!(" of {}", text::bytes(all)));
    let words = format!("rank {}: {}{of}", memory.rank, text::bytes(memory.peak_bytes));
    say_right(buffer, row(area, 0), Line::styled(words, theme.quiet()));
    let parts = memory_parts(theme, |category| memory.at_peak.get(&category).copied().unwrap_or(0));
    say(buffer, row(area, 1), Line::styled("░".repeat(area.width.into()), theme.quiet()));
    draw_parts(buffer, row(area, 1), theme, &parts, full as f64);
}
