//! The few figures that people look for first.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use stepscope_plan::text;
use stepscope_traces::RunSource;

use crate::{
    data::Stage,
    scene::Scene,
    widgets::{row, say},
};

/// Lines of it.
pub(super) const HEIGHT: u16 = 3;

/// A figure: what it is called, what it is, and what to know of it.
struct HeadlineFigure {
    name: &'static str,
    value: String,
    style: Style,
    note: String,
}

/// Draws the figures beside each other.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let figures = [step_time(scene), speed(scene), mfu(scene), loss(scene), memory(scene)];
    let (count, width) = (figures.len(), area.width / figures.len() as u16);
    for (index, figure) in figures.into_iter().enumerate() {
        // A column is free between them.
        let wide = width.saturating_sub(u16::from(index + 1 < count));
        let place = Rect { x: area.x + index as u16 * width, width: wide, ..area };
        say(buffer, row(place, 0), Line::styled(format!(" {}", figure.name), scene.theme.quiet()));
        say(buffer, row(place, 1), Line::from(vec![Span::raw(" "), Span::styled(figure.value, figure.style)]));
        say(buffer, row(place, 2), Line::styled(format!(" {}", figure.note), scene.theme.quiet()));
    }
}

fn figure(scene: &Scene<'_>, name: &'static str, value: Option<String>, note: String) -> HeadlineFigure {
    let style = if value.is_some() { scene.theme.strong() } else { scene.theme.quiet() };
    HeadlineFigure { name, value: value.unwrap_or_else(|| "unknown".into()), style, note }
}

fn step_time(scene: &Scene<'_>) -> HeadlineFigure {
    let time = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
    let note = match time {
        None if scene.snapshot.stage == Stage::Following => "no steps yet".into(),
        None => "no steps".into(),
        Some(time) if time.inferred => "steps inferred".into(),
        Some(time) if time.count < 2 => format!("step {}", time.first_step),
        // A tenth of fewer steps is none of them.
        Some(time) if time.count < 10 => format!("all in {}", text::durations(time.low_ns, time.high_ns)),
        Some(time) => format!("80% in {}", text::durations(time.low_ns, time.high_ns)),
    };
    let name = if time.is_some_and(|time| time.count == 1) { "step" } else { "step, median" };
    figure(scene, name, time.map(|time| text::duration(time.median_ns)), note)
}

fn speed(scene: &Scene<'_>) -> HeadlineFigure {
    let time = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
    let speed = time.and_then(|time| time.tokens_per_second);
    let tokens = scene.steps_so_far().iter().rev().find_map(|step| step.tokens);
    let note = match tokens {
        // Large counts are shown in millions.
        Some(tokens) if tokens >= 1e6 => format!("{}/step", text::parameters(tokens.round() as u64)),
        Some(tokens) => format!("{}/step", text::count(tokens.round() as u64)),
        None => "no counts".into(),
    };
    figure(scene, "tokens/s", speed.map(|speed| text::count(speed.round() as u64)), note)
}

fn mfu(scene: &Scene<'_>) -> HeadlineFigure {
    let analysis = scene.snapshot.analysis.as_ref();
    let mfu = analysis.and_then(|analysis| analysis.mfu.as_ref());
    let value = mfu.and_then(|mfu| mfu.value);
    let run = scene.snapshot.run.as_ref();
    let note = match (mfu, run) {
        (Some(mfu), _) => match (mfu.training_value, mfu.hfu.filter(|hfu| Some(*hfu) != value)) {
            (Some(training), _) => format!("{} training", text::percent(training)),
            (None, Some(hfu)) => format!("HFU {}", text::percent(hfu)),
            (None, None) => format!("of {}", peak(mfu.peak_flops)),
        },
        (None, Some(run)) if run.source != RunSource::Stepscope => "no model".into(),
        (None, Some(run)) if run.model.is_none() => "no model".into(),
        (None, _) if analysis.is_some_and(|analysis| analysis.run.sequence_length.is_none()) => "no seq. length".into(),
        (None, _) => "peak unknown".into(),
    };
    figure(scene, "MFU", value.map(text::percent), note)
}

/// The peak of a device, rounded.
fn peak(flops: f64) -> String {
    let words = text::flops(flops);
    match words.split_once(' ') {
        Some((number, unit)) => format!("{:.0} {unit}", number.parse::<f64>().unwrap_or(0.0)),
        None => words,
    }
}

fn loss(scene: &Scene<'_>) -> HeadlineFigure {
    let mut losses = scene.steps_so_far().iter().filter_map(|step| Some((step.step, step.loss?)));
    let (first, last) = (losses.next(), losses.next_back());
    let note = match first {
        Some((_, loss)) if last.is_some() => format!("from {}", text::training_loss(loss)),
        Some((step, _)) => format!("in step {step}"),
        None => "none recorded".into(),
    };
    let value = last.or(first).map(|(_, loss)| loss);
    let mut figure = figure(scene, "loss", value.map(text::training_loss), note);
    if value.is_some_and(|loss| !loss.is_finite()) {
        figure.style = scene.theme.bad();
    }
    figure
}

/// From this part of a device on, memory may not last.
const NEARLY_FULL: f64 = 0.9;

fn memory(scene: &Scene<'_>) -> HeadlineFigure {
    let memory = scene.memory();
    let share = memory.zip(scene.capacity()).map(|(memory, all)| (memory.peak_bytes as f64 / all as f64, all));
    let note = match (memory, share) {
        (_, Some((share, all))) => format!("{} of {}", text::percent(share), text::bytes(all)),
        (Some(memory), None) => format!("on rank {}", memory.rank),
        (None, None) => "none recorded".into(),
    };
    let mut figure = figure(scene, "memory, peak", memory.map(|memory| text::bytes(memory.peak_bytes)), note);
    if share.is_some_and(|(share, _)| share >= NEARLY_FULL) {
        figure.style = scene.theme.warning();
    }
    figure
}
