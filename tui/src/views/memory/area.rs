//! Memory over time, one category on the other, with its peak.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{MemoryPoint, RankMemory, StepFigures};
use stepscope_plan::text;
use stepscope_traces::State;

use crate::{
    scene::Scene,
    widgets::{Columns, below, fitting, memory_parts, right_of, row, say, say_right},
};

/// How wide the sizes beside it are.
const AXIS: u16 = 10;

pub(super) fn draw(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    draw_title(scene, memory, row(area, 0), buffer);
    let body = below(area, 2);
    let chart = right_of(Rect { height: body.height.saturating_sub(1), ..body }, AXIS);
    let Some(time) = Time::of(memory, chart.width) else { return };
    let full = memory.peak_bytes.max(1);
    let columns = Columns { theme, area: chart, full: full as f64 };
    let mut before: Option<&MemoryPoint> = None;
    let mut points = memory.timeline.iter().peekable();
    for column in 0..chart.width {
        // The fullest of a column is seen; where nothing happens, what was there stays.
        let mut fullest: Option<&MemoryPoint> = None;
        while let Some(point) = points.next_if(|point| time.column(point.time_ns) <= column) {
            fullest = fullest.filter(|other| other.total() >= point.total()).or(Some(point));
            before = Some(point);
        }
        if let Some(point) = fullest.or(before) {
            columns.draw(buffer, column, 1, &memory_parts(theme, |category| point.bytes[category as usize]));
        }
    }
    draw_peak(scene, memory, time.column(memory.peak_time_ns), right_of(row(area, 1), AXIS), buffer);
    for (line, share) in
        [(0, 1.0), (chart.height / 2, 1.0 - f64::from(chart.height / 2) / f64::from(chart.height.max(1)))]
    {
        let words = format!("{:>width$} ", text::bytes((full as f64 * share) as u64), width = usize::from(AXIS) - 1);
        if line == 0 || chart.height > 4 {
            say(buffer, Rect { width: AXIS, ..row(body, line) }, Line::styled(words, theme.quiet()));
        }
    }
    let axis = right_of(below(body, chart.height), AXIS);
    let since = |moment: i64| text::duration(moment.saturating_sub(time.began));
    say(buffer, row(axis, 0), Line::styled(since(time.from), theme.quiet()));
    say_right(buffer, row(axis, 0), Line::styled(since(time.to), theme.quiet()));
    draw_chosen(scene, memory, &time, row(axis, 0), buffer);
}

/// A mark under the chosen step, if it is known where that is.
fn draw_chosen(scene: &Scene<'_>, memory: &RankMemory, time: &Time, place: Rect, buffer: &mut Buffer) {
    let steps = scene.snapshot.analysis.as_ref().map_or(&[][..], |analysis| &analysis.steps);
    let chosen = |step: &&StepFigures| Some(step.step) == scene.chosen && step.rank == memory.rank;
    let Some(step) = steps.iter().find(chosen) else { return };
    let (from, to) = (time.column(step.start_ns), time.column(step.start_ns.saturating_add(step.duration_ns)));
    let marks = "▲".repeat(usize::from(to.saturating_sub(from)).max(1));
    let words = format!("{marks} step {}", step.step);
    let style = scene.theme.warning();
    if from + words.chars().count() as u16 <= place.width {
        say(buffer, right_of(place, from), Line::styled(words, style));
    } else {
        let words = format!("step {} {marks}", step.step);
        say_right(buffer, Rect { width: to.max(from + 1).min(place.width), ..place }, Line::styled(words, style));
    }
}

/// Whose memory it is, and what there is of it now.
fn draw_title(scene: &Scene<'_>, memory: &RankMemory, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let which = match scene.focus {
        Some(_) => "",
        None if scene.snapshot.memory.len() > 1 => ", the fullest",
        None => "",
    };
    let now: u64 = memory.at_end.values().sum();
    let inferred = if memory.inferred { "  categories inferred" } else { "" };
    let when = if scene.snapshot.state() == Some(State::Recording) { "now" } else { "at the end" };
    let gaps =
        memory.gaps.filter(|gaps| *gaps > 0).map(|gaps| format!("{} in its event history", text::counted(gaps, "gap")));
    let growth = memory.growth_bytes_per_step.filter(|growth| *growth > 0.0);
    let growth = growth.map(|growth| format!("grows by {} per step", text::bytes(growth as u64)));
    let wrong: Vec<String> = [gaps, growth].into_iter().flatten().collect();
    let wrong = if wrong.is_empty() { String::new() } else { format!(" {} ", wrong.join(" · ")) };
    let wrong = Line::styled(wrong, theme.bad());
    let pieces = [
        Span::styled(format!(" Memory of rank {}{which}", memory.rank), theme.title()),
        Span::styled(format!("  {when} {}", text::bytes(now)), theme.strong()),
        Span::styled(inferred, theme.warning()),
    ];
    say(buffer, place, fitting(pieces, place.width.saturating_sub(wrong.width() as u16)));
    say_right(buffer, place, wrong);
}

/// A mark over the peak, and what it is, on the side where there is room.
fn draw_peak(scene: &Scene<'_>, memory: &RankMemory, column: u16, place: Rect, buffer: &mut Buffer) {
    let step = memory.peak_step.map_or_else(String::new, |step| format!(", step {step}"));
    let phase = memory.peak_phase.map_or_else(String::new, |phase| format!(", {phase}"));
    let words = format!("peak {}{step}{phase}", text::bytes(memory.peak_bytes));
    let style = scene.theme.warning();
    let length = words.chars().count() as u16 + 2;
    if column + length <= place.width {
        say(buffer, right_of(place, column), Line::styled(format!("▼ {words}"), style));
    } else {
        let place = Rect { width: (column + 1).min(place.width), ..place };
        say_right(buffer, place, Line::styled(format!("{words} ▼"), style));
    }
}

/// Time from left to right.
struct Time {
    /// When recording memory began.
    began: i64,
    from: i64,
    to: i64,
    columns: u16,
}

/// Before there is this share of the peak, nothing is to be seen.
const LEAST_SEEN: u64 = 100;

impl Time {
    /// From where there is something to be seen to the end.
    fn of(memory: &RankMemory, columns: u16) -> Option<Time> {
        let (first, last) = (memory.timeline.first()?, memory.timeline.last()?);
        let seen = |point: &&MemoryPoint| point.total() >= memory.peak_bytes / LEAST_SEEN;
        let from = memory.timeline.iter().find(seen).unwrap_or(first).time_ns;
        Some(Time { began: first.time_ns, from, to: last.time_ns.max(from.saturating_add(1)), columns })
    }

    fn column(&self, time: i64) -> u16 {
        let share = (time.saturating_sub(self.from)) as f64 / (self.to.saturating_sub(self.from)).max(1) as f64;
        ((share * f64::from(self.columns)) as u16).min(self.columns.saturating_sub(1))
    }
}
