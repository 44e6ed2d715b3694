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
    widgets::{below, right_of, row, say},
};

/// Lines of a figure.
const HEIGHT: u16 = 3;
/// How figures may stand: on so many lines, with the first or the second of their notes. The first way that fits is taken.
const WAYS: [(usize, usize); 4] = [(1, 0), (1, 1), (2, 0), (2, 1)];

/// A figure: what it is called, what it is, and what to know of it, in a few words or in fewer.
struct HeadlineFigure {
    name: &'static str,
    value: String,
    style: Style,
    notes: [String; 2],
}

impl HeadlineFigure {
    /// How wide it is with one of its notes, and a free column before it.
    fn width(&self, note: usize) -> usize {
        let words = [self.name, &self.value, &self.notes[note]].map(|words| words.chars().count());
        words.into_iter().max().unwrap_or(0) + 1
    }
}

/// How wide the columns of figures are, on so many lines.
fn widths(figures: &[HeadlineFigure], lines: usize, note: usize) -> Vec<usize> {
    let columns = figures.len().div_ceil(lines);
    let width =
        |column| figures.iter().skip(column).step_by(columns).map(|figure| figure.width(note)).max().unwrap_or(0);
    (0..columns).map(width).collect()
}

/// Draws the figures beside each other; says how many lines they take.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) -> u16 {
    let figures = [step_time(scene), elapsed(scene), speed(scene), mfu(scene), loss(scene)].into_iter();
    let figures: Vec<HeadlineFigure> = figures.chain(noise_scale(scene)).chain([memory(scene)]).collect();
    let room = usize::from(area.width);
    let fits = |(lines, note): &(usize, usize)| widths(&figures, *lines, *note).iter().sum::<usize>() <= room;
    let (lines, note) = WAYS.into_iter().find(fits).unwrap_or((1, 1));
    let widths = widths(&figures, lines, note);
    // Columns share what is left of the line.
    let more = room.saturating_sub(widths.iter().sum()) / widths.len();
    for (line, figures) in figures.chunks(widths.len()).enumerate() {
        let mut place = below(area, line as u16 * HEIGHT);
        for (figure, width) in figures.iter().zip(&widths) {
            let wide = Rect { width: (*width as u16).min(place.width), ..place };
            // What does not fit is left out as a whole.
            if figure.width(note) <= place.width.into() {
                draw_figure(scene, figure, note, wide, buffer);
            }
            place = right_of(place, (width + more) as u16);
        }
    }
    lines as u16 * HEIGHT
}

fn draw_figure(scene: &Scene<'_>, figure: &HeadlineFigure, note: usize, place: Rect, buffer: &mut Buffer) {
    say(buffer, row(place, 0), Line::styled(format!(" {}", figure.name), scene.theme.quiet()));
    let value = Span::styled(figure.value.clone(), figure.style);
    say(buffer, row(place, 1), Line::from(vec![Span::raw(" "), value]));
    say(buffer, row(place, 2), Line::styled(format!(" {}", figure.notes[note]), scene.theme.quiet()));
}

fn figure(scene: &Scene<'_>, name: &'static str, value: Option<String>, notes: [String; 2]) -> HeadlineFigure {
    let style = if value.is_some() { scene.theme.strong() } else { scene.theme.quiet() };
    HeadlineFigure { name, value: value.unwrap_or_else(|| "unknown".into()), style, notes }
}

/// A note that has no shorter form.
fn only(note: impl Into<String>) -> [String; 2] {
    let note = note.into();
    [note.clone(), note]
}

fn step_time(scene: &Scene<'_>) -> HeadlineFigure {
    let time = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
    let notes = match time {
        None if scene.snapshot.stage == Stage::Following => only("no steps yet"),
        None => only("no steps"),
        Some(time) if time.inferred => only("steps inferred"),
        Some(time) if time.count < 2 => only(format!("step {}", time.first_step)),
        Some(time) => {
            let range = text::durations(time.low_ns, time.high_ns);
            // A tenth of fewer steps is none of them.
            let of = if time.count < 10 { "all in" } else { "80% in" };
            [format!("{of} {range}"), range]
        }
    };
    let name = if time.is_some_and(|time| time.count == 1) { "step" } else { "step, median" };
    figure(scene, name, time.map(|time| text::duration(time.median_ns)), notes)
}

fn elapsed(scene: &Scene<'_>) -> HeadlineFigure {
    let time = scene.snapshot.time;
    let notes = match time.left_ns {
        Some(left) => {
            let left = text::duration(left);
            [format!("about {left} left"), format!("{left} left")]
        }
        None => only(text::counted(scene.snapshot.steps.len() as u64, "step")),
    };
    figure(scene, "elapsed", time.elapsed_ns.map(text::duration), notes)
}

fn speed(scene: &Scene<'_>) -> HeadlineFigure {
    let time = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
    let speed = time.and_then(|time| time.tokens_per_second);
    let tokens = scene.steps_so_far().iter().rev().find_map(|step| step.tokens);
    let note = match tokens {
        // Large counts are shown in millions.
        Some(tokens) if tokens >= 1e6 => format!("{}/step", text::parameters(tokens.round() as u64)),
        Some(tokens) => format!("{}/step", text::count(tokens.round() as u64)),
        None => "not recorded".into(),
    };
    figure(scene, "tokens/s", speed.map(|speed| text::count(speed.round() as u64)), only(note))
}

fn mfu(scene: &Scene<'_>) -> HeadlineFigure {
    let analysis = scene.snapshot.analysis.as_ref();
    let mfu = analysis.and_then(|analysis| analysis.mfu.as_ref());
    let value = mfu.and_then(|mfu| mfu.value);
    let run = scene.snapshot.run.as_ref();
    let note = match (mfu, run) {
        (Some(_), _) if analysis.is_some_and(|analysis| analysis.beyond_peak().is_some()) => "peak is too low".into(),
        (Some(mfu), _) => match (mfu.training_value, mfu.hfu.filter(|hfu| Some(*hfu) != value)) {
            (Some(training), _) => format!("{} training", text::percent(training)),
            (None, Some(hfu)) => format!("HFU {}", text::percent(hfu)),
            (None, None) => format!("of {}", peak(mfu.peak_flops)),
        },
        (None, Some(run)) if run.source != RunSource::Stepscope => "model unknown".into(),
        (None, Some(run)) if run.model.is_none() => "model unknown".into(),
        (None, _) if analysis.is_some_and(|analysis| analysis.run.sequence_length.is_none()) => "length unknown".into(),
        (None, _) => "peak unknown".into(),
    };
    figure(scene, "MFU", value.map(text::percent), only(note))
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
    let losses = scene.snapshot.analysis.as_ref().map_or_else(Vec::new, |analysis| analysis.counted_losses());
    let note = match &losses[..] {
        [] => "not recorded".into(),
        [(step, _)] => format!("in step {step}"),
        [(_, first), ..] => format!("from {}", text::training_loss(*first)),
    };
    let value = losses.last().map(|(_, loss)| *loss);
    let mut figure = figure(scene, "loss", value.map(text::training_loss), only(note));
    if value.is_some_and(|loss| !loss.is_finite()) {
        figure.style = scene.theme.bad();
    }
    figure
}

/// How noisy gradients are, where that is measured: with more tokens in a step than that, they help less.
fn noise_scale(scene: &Scene<'_>) -> Option<HeadlineFigure> {
    let analysis = scene.snapshot.analysis.as_ref()?;
    let scale = analysis.gradient_noise_scale()?;
    let value = format!("{} tokens", text::count(scale as u64));
    Some(figure(scene, "gradient noise", Some(value), ["about critical batch".into(), "critical batch".into()]))
}

/// From this part of a device on, memory may not last.
const NEARLY_FULL: f64 = 0.9;

fn memory(scene: &Scene<'_>) -> HeadlineFigure {
    let memory = scene.memory();
    let share = memory.zip(scene.capacity()).map(|(memory, all)| (memory.peak_bytes as f64 / all as f64, all));
    let notes = match (memory, share) {
        (_, Some((share, all))) => {
            let share = text::percent(share);
            [format!("{share} of {}", text::bytes(all)), format!("{share} full")]
        }
        (Some(memory), None) => only(format!("on rank {}", memory.rank)),
        (None, None) => only("not recorded"),
    };
    let mut figure = figure(scene, "memory, peak", memory.map(|memory| text::bytes(memory.peak_bytes)), notes);
    if share.is_some_and(|(share, _)| share >= NEARLY_FULL) {
        figure.style = scene.theme.warning();
    }
    figure
}
