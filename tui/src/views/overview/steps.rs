//! Step time as stacked bars over steps.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::StepSummary;
use stepscope_plan::text;
use stepscope_traces::Step;

use crate::{
    scene::Scene,
    theme::{Mark, Theme},
    time_parts::time_parts,
    widgets::{Columns, Part, below, parts_line, right_of, row, say},
};

/// How wide the times beside the bars are.
const AXIS: u16 = 9;
/// How wide a bar is at most, unless it is asked for.
const WIDEST: usize = 10;
/// A bar so much longer than the median is cut off, or the others would be too small to see.
const MOST_MEDIANS: i64 = 3;

/// The bars, and which of them are seen.
#[derive(Default)]
pub(super) struct Steps {
    /// Above zero, bars are so much wider than they would be; below, all steps are seen, several in a bar.
    zoom: i8,
    /// Where bars are, for the mouse: of each column of the screen, a step.
    drawn: Vec<(u16, Step)>,
    area: Rect,
}

/// Some steps in one bar.
struct Bar {
    first: Step,
    last: Step,
    /// Of one of them, on average.
    duration: f64,
    parts: Vec<Part>,
}

impl Bar {
    fn of(steps: &[StepSummary], theme: &Theme) -> Option<Bar> {
        let (first, last) = (steps.first()?, steps.last()?);
        let duration = steps.iter().map(|step| step.duration_ns as f64).sum::<f64>() / steps.len() as f64;
        // All ranks' parts, scaled to the time of the step.
        let whole: f64 = steps.iter().map(|step| step.all_ranks.span_ns as f64).sum();
        let scaled = |part: f64| if whole > 0.0 { duration * part / whole } else { 0.0 };
        let parts = time_parts(theme).map(|part| Part {
            mark: part.mark,
            amount: scaled(steps.iter().map(|step| part.of(&step.all_ranks) as f64).sum()),
        });
        Some(Bar { first: first.step, last: last.step, duration, parts: parts.to_vec() })
    }
}

impl Steps {
    pub(super) fn zoom_in(&mut self) {
        self.zoom = (self.zoom + 1).min(6);
    }

    pub(super) fn zoom_out(&mut self) {
        self.zoom = (self.zoom - 1).max(-1);
    }

    /// The step that is drawn at a place.
    pub(super) fn step_at(&self, x: u16, y: u16) -> Option<Step> {
        let inside = self.area.contains((x, y).into());
        inside.then(|| self.drawn.iter().rfind(|(from, _)| *from <= x).map(|(_, step)| *step))?
    }

    pub(super) fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let steps = scene.steps();
        draw_legend(scene, row(area, 0), buffer);
        let bottom = 2;
        let body = below(area, 1);
        let bars = right_of(Rect { height: body.height.saturating_sub(bottom), ..body }, AXIS);
        (self.area, self.drawn) = (bars, Vec::new());
        let footer = below(body, bars.height);
        if steps.is_empty() {
            self.draw_without_steps(scene, bars, buffer);
            return;
        }
        let (columns, width) = self.visible(&steps, scene, bars.width);
        let full = full_height(&columns, scene);
        draw_axis(full, Rect { width: AXIS, height: bars.height, ..body }, scene, buffer);
        let chart = Columns { theme: scene.theme, area: bars, full };
        let gap = u16::from(width > 2);
        for (index, bar) in columns.iter().enumerate() {
            let x = index as u16 * width;
            chart.draw(buffer, x, width - gap, &bar.parts);
            self.drawn.push((bars.x + x, bar.last));
            let is_chosen = scene.chosen.is_some_and(|chosen| (bar.first..=bar.last).contains(&chosen));
            if bar.duration > full * 1.001 {
                chart.draw_beyond(buffer, x);
            }
            if is_chosen {
                let place = Rect { x: bars.x + x, width: width - gap, ..row(footer, 0) };
                say(buffer, place, Line::styled("▲".repeat(width.into()), scene.theme.warning()));
            }
        }
        let next = columns.len() as u16 * width;
        if let Some(running) = scene.snapshot.running.filter(|_| scene.focus.is_none() && self.zoom >= 0) {
            let mark = Mark { letter: '-', ..scene.theme.idle() };
            chart.draw(buffer, next, width - gap, &[Part { mark, amount: running.elapsed_ns as f64 }]);
        }
        draw_numbers(&columns, width, scene, Rect { x: bars.x, width: bars.width, ..row(footer, 0) }, buffer);
        draw_step(&steps, scene, row(footer, 1), buffer);
    }

    /// Which bars there are, and how wide they are: as many of the newest as there is room for, or those up to the chosen
    /// one.
    fn visible(&self, steps: &[StepSummary], scene: &Scene<'_>, width: u16) -> (Vec<Bar>, u16) {
        let room = usize::from(width).max(1);
        // The step that is being made is drawn, too.
        let running = usize::from(scene.snapshot.running.is_some());
        let count = steps.len() + running;
        if self.zoom < 0 && count > room {
            let together = count.div_ceil(room);
            return (steps.chunks(together).filter_map(|steps| Bar::of(steps, scene.theme)).collect(), 1);
        }
        let fitting = (room / count).clamp(1, WIDEST);
        let wide = (fitting + usize::try_from(self.zoom).unwrap_or(0)).min(room);
        let most = (room / wide).saturating_sub(running).max(1);
        let chosen = scene.chosen.map(|chosen| steps.partition_point(|step| step.step < chosen));
        let end = match chosen {
            // A chosen step is seen with what comes after it, as far as there is room.
            Some(chosen) if chosen + most / 2 < steps.len() => (chosen + most / 2).max(most.min(steps.len())),
            _ => steps.len(),
        };
        let shown = &steps[end.saturating_sub(most)..end];
        (shown.chunks(1).filter_map(|step| Bar::of(step, scene.theme)).collect(), wide as u16)
    }

    /// Where there are no steps, all of the time is one bar.
    fn draw_without_steps(&self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let Some(time) = scene.time() else { return };
        let parts = time_parts(scene.theme).map(|part| Part { mark: part.mark, amount: part.of(&time) as f64 });
        let words = format!("no steps recorded: the whole {}", text::duration(time.span_ns));
        say(buffer, row(area, 0), Line::styled(words, scene.theme.quiet()));
        say(buffer, row(area, 1), parts_line(scene.theme, &parts, time.span_ns as f64, area.width));
    }
}

/// The time that reaches the top.
fn full_height(bars: &[Bar], scene: &Scene<'_>) -> f64 {
    let median = scene.in_scope.and_then(|analysis| Some(analysis.step_time.as_ref()?.median_ns));
    let limit = median.map_or(f64::INFINITY, |median| median.saturating_mul(MOST_MEDIANS) as f64);
    let longest = bars.iter().map(|bar| bar.duration).fold(0.0, f64::max);
    let running =
        scene.snapshot.running.filter(|_| scene.focus.is_none()).map_or(0.0, |running| running.elapsed_ns as f64);
    let usual = bars.iter().map(|bar| bar.duration).filter(|duration| *duration <= limit).fold(0.0, f64::max);
    let full = if longest > limit && usual > 0.0 { usual * 1.15 } else { longest };
    full.max(running.min(limit)).max(1.0)
}

/// What colors mean, and what share of the time each has in the steps in scope.
fn draw_legend(scene: &Scene<'_>, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let time = scene.time();
    let mut spans = vec![Span::styled(" Steps", theme.title())];
    let is_narrow = place.width < 84;
    for part in time_parts(theme) {
        let (glyph, style) = theme.filled(part.mark);
        let name = if is_narrow { part.name.strip_prefix("exposed ").unwrap_or(part.name) } else { part.name };
        spans.push(Span::raw("  "));
        spans.push(Span::styled(glyph.to_string(), style));
        spans.push(Span::raw(format!(" {name}")));
        if let Some(time) = time {
            let share = part.of(&time) as f64 / time.span_ns as f64;
            spans.push(Span::styled(format!(" {}", text::percent(share)), theme.strong()));
        }
    }
    say(buffer, place, Line::from(spans));
}

/// Times beside the bars: at the top, in the middle, at the bottom.
fn draw_axis(full: f64, area: Rect, scene: &Scene<'_>, buffer: &mut Buffer) {
    let height = area.height;
    let mut write = |line: u16, time: f64| {
        let words = format!("{:>width$} ", text::duration(time as i64), width = usize::from(AXIS) - 1);
        say(buffer, row(area, line), Line::styled(words, scene.theme.quiet()));
    };
    if height > 0 {
        write(0, full);
    }
    if height > 4 {
        write(height / 2, full * (1.0 - f64::from(height / 2) / f64::from(height)));
    }
}

/// The numbers of steps under their bars, as many as there is room for.
fn draw_numbers(bars: &[Bar], width: u16, scene: &Scene<'_>, place: Rect, buffer: &mut Buffer) {
    let mut free = place.x;
    for (index, bar) in bars.iter().enumerate() {
        let x = place.x + index as u16 * width;
        let words = bar.first.to_string();
        let length = words.len() as u16;
        let marked = scene.chosen.is_some();
        if x >= free && x + length <= place.right() && !marked {
            say(buffer, Rect { x, width: length, ..place }, Line::styled(words, scene.theme.quiet()));
            // Some room, so that numbers do not run into each other.
            free = x + (length + 3).max(8);
        }
    }
}

/// The chosen step, or the newest, in figures.
fn draw_step(steps: &[StepSummary], scene: &Scene<'_>, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let found = scene.chosen.and_then(|chosen| steps.iter().find(|step| step.step == chosen));
    if scene.chosen.is_some() && found.is_none() {
        say(buffer, place, Line::styled(" that step of this rank is no longer available", theme.quiet()));
        return;
    }
    let whole = steps.iter().rfind(|step| !scene.is_cut_off(step.step));
    let Some(step) = found.or(whole).or(steps.last()) else { return };
    let (mark, style) = if found.is_some() { ("▲", theme.warning()) } else { ("newest:", theme.quiet()) };
    let mut spans = vec![Span::styled(format!(" {mark} "), style)];
    spans.push(Span::styled(format!("step {}", step.step), theme.strong()));
    spans.push(Span::raw(format!("  {}", text::duration(step.duration_ns))));
    let span = step.all_ranks.span_ns.max(1) as f64;
    let mut more: Vec<String> = Vec::new();
    let incomplete = steps.last().filter(|last| scene.is_cut_off(last.step)).map(|last| last.step);
    more.extend(
        incomplete
            .map(|last| if last == step.step { "incomplete".into() } else { format!("step {last} is incomplete") }),
    );
    if let Some(worst) = time_parts(theme)[1..].iter().max_by_key(|part| part.of(&step.all_ranks)) {
        more.push(format!("{} {}", worst.name, text::percent(worst.of(&step.all_ranks) as f64 / span)));
    }
    more.extend(step.loss.map(|loss| format!("loss {}", text::training_loss(loss))));
    // Tokens are those of all ranks, and the time of a step on one rank is not.
    let speed = step.tokens_per_second.filter(|_| scene.focus.is_none());
    more.extend(speed.map(|speed| format!("{} tokens/s", text::count(speed.round() as u64))));
    more.extend(step.mfu.map(|mfu| format!("MFU {}", text::percent(mfu))));
    if step.ranks > 1 {
        more.push(format!("longest on rank {}", step.slowest));
    }
    let mut room = usize::from(place.width).saturating_sub(spans.iter().map(Span::width).sum());
    for words in more {
        let words = format!(" · {words}");
        match room.checked_sub(words.chars().count()) {
            Some(left) => room = left,
            None => break,
        }
        spans.push(Span::styled(words, theme.quiet()));
    }
    say(buffer, place, Line::from(spans));
}
