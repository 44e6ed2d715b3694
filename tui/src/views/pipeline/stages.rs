//! What the time of each stage goes to, in figures, and how the bubble goes from step to step.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{PipelineFigures, StageFigures};
use stepscope_plan::text;
use stepscope_traces::Rank;

use crate::{
    scene::Scene,
    widgets::{below, draw_curve, right_of, row, say},
};

/// A stage with so much more work than another one is worth a word.
const MORE: f64 = 1.05;

/// A line for each of some ranks, under one that says what columns are.
pub(super) fn draw(scene: &Scene<'_>, pipeline: &PipelineFigures, ranks: &[Rank], area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let head = format!(
        " {:<18}{:>8}{:>10}{:>10}{:>10}{:>11}",
        format!("in {}", scene.scope()),
        "bubble",
        "work",
        "warm-up",
        "between",
        "cool-down"
    );
    say(buffer, row(area, 0), Line::styled(head, theme.quiet()));
    for (line, rank) in (1..).zip(ranks) {
        let Some(stage) = pipeline.per_stage.iter().find(|stage| stage.rank == *rank) else { continue };
        say(buffer, row(area, line), stage_line(scene, pipeline, stage));
    }
}

fn stage_line(scene: &Scene<'_>, pipeline: &PipelineFigures, stage: &StageFigures) -> Line<'static> {
    let theme = scene.theme;
    let time = |time: Option<i64>| time.map_or("-".into(), text::duration);
    let bubble = stage.bubble.map_or("-".into(), text::percent);
    let least = pipeline.per_stage.iter().map(|other| other.work_ns).min().unwrap_or(0);
    let stands_out = stage.work_ns as f64 > MORE * least as f64;
    let is_slowest = pipeline.slowest_stage == Some(stage.stage) && stands_out;
    let mut spans = vec![
        Span::raw(format!(" {:<18}", super::name(stage.stage, stage.rank))),
        Span::styled(format!("{bubble:>8}"), theme.strong()),
        Span::raw(format!(
            "{:>10}{:>10}{:>10}{:>11}",
            time(Some(stage.work_ns)),
            time(stage.warm_up_ns),
            time(stage.steady_ns),
            time(stage.cool_down_ns)
        )),
    ];
    if is_slowest {
        spans.push(Span::styled("  most work", theme.warning()));
    }
    Line::from(spans)
}

/// The bubble from step to step.
pub(super) fn draw_steps(scene: &Scene<'_>, pipeline: &PipelineFigures, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let values: Vec<f64> = pipeline.per_step.iter().map(|step| step.bubble).collect();
    let (Some(first), Some(last)) = (pipeline.per_step.first(), pipeline.per_step.last()) else { return };
    let chart = right_of(below(area, 1), 9);
    let ends = draw_curve(buffer, chart, &values, theme.title());
    let words = format!(" Bubble in steps {} to {}", first.step, last.step);
    say(buffer, row(area, 0), Line::styled(words, theme.title()));
    if let Some((least, most)) = ends {
        let label = |share: f64| Line::styled(format!("{:>8}", text::percent(share)), theme.quiet());
        say(buffer, row(area, 1), label(most));
        say(buffer, row(area, area.height.saturating_sub(1)), label(least));
    }
}
