//! Beside the steps, where there is room: where a step goes, how loss and speed went, how full memory is.

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
    widgets::{below, draw_curve, draw_parts, memory_parts, row, say, say_right},
};

pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let waterfall = waterfall(scene);
    let steps = &scene.snapshot.steps;
    let speed = |speed: f64| format!("{} tokens/s", text::count(speed.round() as u64));
    let curves = [
        Curve {
            title: "Loss",
            values: steps.iter().map(|step| step.loss).collect(),
            written: |loss| format!("{loss:.3}"),
        },
        Curve { title: "Speed", values: steps.iter().map(|step| step.tokens_per_second).collect(), written: speed },
    ];
    let known: Vec<&Curve> = curves.iter().filter(|curve| curve.newest().is_some()).collect();
    // The waterfall and memory have their lines, the curves of which something is known what is left.
    let fixed = 2 + waterfall.len() as u16 + 3;
    let height = (area.height.saturating_sub(fixed) / known.len().max(1) as u16).min(HIGHEST);
    let mut rest = area;
    if !waterfall.is_empty() {
        say(buffer, row(rest, 0), Line::styled("Where a step goes, in points", scene.theme.title()));
        let lines = waterfall.len() as u16;
        for (index, line) in waterfall.into_iter().enumerate() {
            say(buffer, row(below(rest, 1), index as u16), line);
        }
        rest = below(rest, lines + 2);
    }
    for curve in known.into_iter().filter(|_| height >= 3) {
        curve.draw(scene, Rect { height, ..rest }, buffer);
        rest = below(rest, height);
    }
    memory(scene, Rect { height: rest.height.min(3), ..rest }, buffer);
}

/// How many lines a curve has at most.
const HIGHEST: u16 = 16;

/// A figure over all steps.
struct Curve {
    title: &'static str,
    values: Vec<Option<f64>>,
    /// As people read it.
    written: fn(f64) -> String,
}

impl Curve {
    fn newest(&self) -> Option<f64> {
        self.values.iter().rev().copied().flatten().find(|value| value.is_finite())
    }

    fn draw(&self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let Curve { title, values, written } = self;
        let Some(newest) = self.newest() else { return };
        let theme = scene.theme;
        let body = below(area, 1);
        let body = Rect { height: body.height.saturating_sub(1), ..body };
        let values: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        let extent = draw_curve(buffer, body, &values, theme.title());
        say(buffer, row(area, 0), Line::styled(*title, theme.title()));
        let range = extent
            .filter(|(least, most)| least < most)
            .map(|(least, most)| format!("{}–{}, now ", number(&written(least)), number(&written(most))));
        let room = usize::from(area.width).saturating_sub(title.len() + 2);
        let words = written(newest);
        // The range is left out where there is no room for it.
        let range = range.filter(|range| range.chars().count() + words.chars().count() <= room).unwrap_or_default();
        let line = vec![Span::styled(range, theme.quiet()), Span::styled(words, theme.strong())];
        say_right(buffer, row(area, 0), Line::from(line));
    }
}

/// A number without its unit.
fn number(words: &str) -> &str {
    words.split(' ').next().unwrap_or(words)
}

/// The memory of the rank in focus, or the fullest: a bar of what it has at its peak, as long as its device.
fn memory(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let Some(memory) = scene.memory() else { return };
    say(buffer, row(area, 0), Line::styled("Memory peak", theme.title()));
    let full = scene.capacity().unwrap_or(0).max(memory.peak_bytes);
    let of = scene.capacity().map_or_else(String::new, |all| format!(" of {}", text::bytes(all)));
    let words = format!("rank {}: {}{of}", memory.rank, text::bytes(memory.peak_bytes));
    say_right(buffer, row(area, 0), Line::styled(words, theme.quiet()));
    let parts = memory_parts(theme, |category| memory.at_peak.get(&category).copied().unwrap_or(0));
    say(buffer, row(area, 1), Line::styled("░".repeat(area.width.into()), theme.quiet()));
    draw_parts(buffer, row(area, 1), theme, &parts, full as f64);
}

/// How many lines the waterfall has at most.
const MOST_LINES: usize = 9;
/// How wide its words and its bars are.
const WORDS: usize = 28;
const BAR: f64 = 6.0;

/// What takes a step, from the peak to what is used of it.
fn waterfall(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let Some(analysis) = &scene.snapshot.analysis else { return Vec::new() };
    let theme = scene.theme;
    let line = |line: &WaterfallLine| {
        let (glyph, style) = theme.filled(mark(scene, line.part));
        let bar = (line.points.max(0.0) / 100.0 * BAR).round() as usize;
        let words = &line.words;
        Line::from(vec![
            Span::raw(format!("{words:<WORDS$} {:>4.1} ", line.points)),
            Span::styled(glyph.to_string().repeat(bar), style),
        ])
    };
    WaterfallRow::lines(&analysis.waterfall, MOST_LINES).iter().map(line).collect()
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
