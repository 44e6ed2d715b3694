//! How loss, speed and MFU went over all steps, beside each other.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_plan::text;

use crate::{
    scene::Scene,
    widgets::{below, draw_curve, right_of, row, say, say_right},
};

/// How wide a curve is at least, and how much room is between two.
const LEAST: u16 = 20;
const GAP: u16 = 3;

/// A figure over all steps.
struct Curve {
    title: &'static str,
    values: Vec<Option<f64>>,
    /// As people read it.
    written: fn(f64) -> String,
}

/// The figures of which something is known.
fn curves(scene: &Scene<'_>) -> Vec<Curve> {
    let steps = &scene.snapshot.steps;
    let curves = [
        Curve { title: "Loss", values: steps.iter().map(|step| step.loss).collect(), written: text::training_loss },
        Curve {
            title: "Tokens/s",
            values: steps.iter().map(|step| step.tokens_per_second).collect(),
            written: |speed| text::count(speed.round() as u64),
        },
        Curve { title: "MFU", values: steps.iter().map(|step| step.mfu).collect(), written: text::percent },
    ];
    curves.into_iter().filter(|curve| curve.newest().is_some()).collect()
}

/// How many of the available lines they take: none, where nothing is known.
pub(super) fn height(scene: &Scene<'_>, lines: u16) -> u16 {
    if curves(scene).is_empty() { 0 } else { lines }
}

pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let mut curves = curves(scene);
    curves.truncate(usize::from((area.width + GAP) / (LEAST + GAP)));
    let count = curves.len().max(1) as u16;
    let width = (area.width + GAP) / count - GAP.min((area.width + GAP) / count);
    // A line above them is free.
    let mut rest = right_of(below(area, 1), 1);
    for curve in curves {
        curve.draw(scene, Rect { width: width.min(rest.width), ..rest }, buffer);
        rest = right_of(rest, width + GAP);
    }
}

impl Curve {
    fn newest(&self) -> Option<f64> {
        self.values.iter().rev().find_map(|value| *value)
    }

    fn draw(&self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let Curve { title, values, written } = self;
        let Some(newest) = self.newest() else { return };
        let theme = scene.theme;
        let values: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        let extent = draw_curve(buffer, below(area, 1), &values, theme.title());
        say(buffer, row(area, 0), Line::styled(*title, theme.title()));
        let range = extent
            .filter(|(least, most)| least < most)
            .map(|(least, most)| format!("{}–{}, now ", written(least), written(most)));
        let room = usize::from(area.width).saturating_sub(title.len() + 2);
        let words = written(newest);
        // The range is left out where there is no room for it.
        let range = range.filter(|range| range.chars().count() + words.chars().count() <= room).unwrap_or_default();
        let line = vec![Span::styled(range, theme.quiet()), Span::styled(words, theme.strong())];
        say_right(buffer, row(area, 0), Line::from(line));
    }
}
