//! Memory over time, one category on the other, with its peak.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{MemoryPoint, RankMemory};
use stepscope_traces::{MemoryCategory, Nanos};

use crate::{
    scene::Scene,
    text,
    widgets::{Columns, Part, below, right_of, row, say, say_right},
};

/// How wide the sizes beside it are.
const AXIS: u16 = 10;

pub(super) fn draw(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    draw_title(scene, memory, row(area, 0), buffer);
    let body = below(area, 2);
    let chart = right_of(Rect { height: body.height.saturating_sub(1), ..body }, AXIS);
    let (Some(first), Some(last)) = (memory.timeline.first(), memory.timeline.last()) else { return };
    let full = memory.peak_bytes.max(1);
    let columns = Columns { theme, area: chart, full: full as f64 };
    let time = Time { from: first.time_ns, to: last.time_ns.max(first.time_ns + 1), columns: chart.width };
    let mut shown: Option<&MemoryPoint> = None;
    let mut points = memory.timeline.iter().peekable();
    for column in 0..chart.width {
        // The fullest of a column is seen; where nothing happens, what was there stays.
        let mut fullest = shown;
        while let Some(point) = points.next_if(|point| time.column(point.time_ns) <= column) {
            fullest = match fullest {
                Some(other)
                    if other.total() >= point.total() && Some(other.time_ns) != shown.map(|shown| shown.time_ns) =>
                {
                    Some(other)
                }
                _ => Some(point),
            };
            shown = Some(point);
        }
        let Some(point) = fullest else { continue };
        let parts: Vec<Part> = MemoryCategory::ALL
            .iter()
            .zip(point.bytes)
            .map(|(category, bytes)| Part { mark: theme.category(*category), amount: bytes as f64 })
            .collect();
        columns.draw(buffer, column, 1, &parts);
    }
    draw_peak(scene, memory, time.column(memory.peak_time_ns), right_of(row(area, 1), AXIS), buffer);
    for (line, share) in
        [(0, 1.0), (chart.height / 2, 1.0 - f64::from(chart.height / 2) / f64::from(chart.height.max(1)))]
    {
        let words = format!("{:>width$} ", text::bytes((full as f64 * share) as u64), width = usize::from(AXIS) - 1);
        if line == 0 || chart.height > 4 {
            say(buffer, Rect { width: AXIS, ..row(chart, line) }.offset_left(AXIS), Line::styled(words, theme.quiet()));
        }
    }
    let axis = right_of(below(body, chart.height), AXIS);
    say(buffer, row(axis, 0), Line::styled("0 s", theme.quiet()));
    say_right(buffer, row(axis, 0), Line::styled(text::duration(Nanos(time.to - time.from)), theme.quiet()));
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
    let inferred = if memory.inferred { "  categories are inferred" } else { "" };
    let when = if scene.snapshot.state() == Some(stepscope_traces::State::Recording) { "now" } else { "at the end" };
    let line = Line::from(vec![
        Span::styled(format!(" Memory of rank {}{which}", memory.rank), theme.title()),
        Span::styled(format!("  {when} {}", text::bytes(now)), theme.strong()),
        Span::styled(inferred, theme.warning()),
    ]);
    say(buffer, place, line);
    if let Some(growth) = memory.growth_bytes_per_step.filter(|growth| *growth > 0.0) {
        let words = format!("grows by {} a step ", text::bytes(growth as u64));
        say_right(buffer, place, Line::styled(words, theme.bad()));
    }
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
    from: i64,
    to: i64,
    columns: u16,
}

impl Time {
    fn column(&self, time: i64) -> u16 {
        let share = (time.saturating_sub(self.from)) as f64 / (self.to.saturating_sub(self.from)).max(1) as f64;
        ((share * f64::from(self.columns)) as u16).min(self.columns.saturating_sub(1))
    }
}

/// Moves a place to the left.
trait OffsetLeft {
    fn offset_left(self, columns: u16) -> Self;
}

impl OffsetLeft for Rect {
    fn offset_left(self, columns: u16) -> Rect {
        Rect { x: self.x.saturating_sub(columns), ..self }
    }
}
