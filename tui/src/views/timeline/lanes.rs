//! Ranks, one below the other: to what in the training their time belongs, and below that what each stream did.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Style},
    text::Line,
};
use stepscope_analyzer::{Column, Frame, LaneColumns};
use stepscope_plan::text;
use stepscope_traces::Family;
use stepscope_traces::{Nanos, Rank, SpanKind, Step, Stream, Window};

use super::Selected;
use crate::{
    data::{RankDetail, TimelineDetail},
    theme::Theme,
    views::stretch,
    widgets::{Columns, EIGHTHS, Part, right_of, row, say},
};

/// How wide the names beside the lanes are.
pub(super) const NAMES: u16 = 17;
/// How high a lane is at most.
const HIGHEST: u16 = 6;

/// What the annotations of each line are, from the one that is left out last.
const FRAMES: [SpanKind; 4] = [SpanKind::Phase, SpanKind::MicroBatch, SpanKind::Layer, SpanKind::Step];

/// What is drawn on which lines.
pub(super) struct Arrangement {
    /// The annotations of a rank, from the outermost.
    frames: Vec<SpanKind>,
    /// How high each lane is.
    lane_height: u16,
    /// Whether ranks stand apart.
    gap: u16,
}

/// Where a lane was drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LanePlace {
    pub(super) rank: Rank,
    pub(super) stream: Option<Stream>,
    pub(super) place: Rect,
}

impl Arrangement {
    /// Shows as much of so many ranks as there is room for: annotations first, then lanes that are higher.
    pub(super) fn of(timeline: &TimelineDetail, ranks: usize, height: u16) -> Arrangement {
        let known = |kind: &SpanKind| {
            let frames = timeline.ranks.iter().flat_map(|rank| &rank.columns.frames);
            frames.flatten().any(|frame| is_known(frame, *kind))
        };
        let mut known: Vec<SpanKind> = FRAMES.into_iter().filter(known).collect();
        // Over several steps, which they are matters most.
        let steps = timeline.ranks.first().into_iter().flat_map(|rank| &rank.columns.frames);
        let mut steps: Vec<Step> = steps.flatten().filter_map(|frame| frame.step).collect();
        steps.dedup();
        known.sort_by_key(|kind| steps.len() > 2 && *kind != SpanKind::Step);
        let lanes = timeline.ranks.iter().map(|rank| rank.columns.lanes.len()).max().unwrap_or(1).max(1);
        let (height, ranks) = (usize::from(height), ranks.max(1));
        let fits = |frames: usize, gap: usize| ranks.saturating_mul(frames + lanes + gap) <= height + gap;
        let least = known.len().min(1);
        let frames = (least..=known.len()).rev().find(|frames| fits(*frames, 0)).unwrap_or(least);
        let gap = u16::from(fits(frames, 1));
        let left = height.saturating_sub(ranks.saturating_mul(frames + usize::from(gap)));
        let lane_height = (left / ranks.saturating_mul(lanes)).clamp(1, HIGHEST.into()) as u16;
        let mut frames: Vec<SpanKind> = known[..frames].to_vec();
        frames.sort();
        Arrangement { frames, lane_height, gap }
    }

    /// How many lines a rank with so many lanes takes.
    pub(super) fn height(&self, lanes: usize) -> u16 {
        let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
        (self.frames.len() as u16 + self.gap).saturating_add(lanes.saturating_mul(self.lane_height))
    }

    /// How many lanes of the first rank are above what is view, so that the selected one is view.
    fn skipped(&self, view: &LaneView<'_>, rank: &RankDetail, height: u16) -> usize {
        let is_selected =
            |lane: &LaneColumns| view.selected.is_some_and(|one| one.is_on(rank.columns.rank, lane.stream));
        let fits = usize::from(height.saturating_sub(self.frames.len() as u16) / self.lane_height).max(1);
        rank.columns.lanes.iter().position(is_selected).map_or(0, |at| (at + 1).saturating_sub(fits))
    }

    /// Draws ranks from the top; says where lanes are.
    pub(super) fn draw(
        &self,
        view: &LaneView<'_>,
        timeline: &TimelineDetail,
        area: Rect,
        buffer: &mut Buffer,
    ) -> Vec<LanePlace> {
        let mut places = Vec::new();
        let mut line = 0;
        for rank in &timeline.ranks {
            if line >= area.height {
                break;
            }
            let mut name = format!("rank {}", rank.columns.rank);
            for kind in &self.frames {
                let words = format!(" {:<9}{:>6} ", std::mem::take(&mut name), word(*kind));
                say(
                    buffer,
                    Rect { width: NAMES.min(area.width), ..row(area, line) },
                    Line::styled(words, view.theme.quiet()),
                );
                draw_frames(view, rank, *kind, &self.frames, right_of(row(area, line), NAMES), buffer);
                line += 1;
            }
            let skipped = if line <= self.frames.len() as u16 { self.skipped(view, rank, area.height) } else { 0 };
            for lane in rank.columns.lanes.iter().skip(skipped) {
                let place = Rect { height: self.lane_height.min(area.height.saturating_sub(line)), ..row(area, line) };
                if place.height == 0 || line >= area.height {
                    break;
                }
                let stream = lane.stream.map_or("?".into(), |stream| stream.to_string());
                let is_selected = view.selected.is_some_and(|selected| selected.is_on(rank.columns.rank, lane.stream));
                let style = if is_selected { view.theme.chosen() } else { Style::new() };
                let words = match std::mem::take(&mut name) {
                    name if name.is_empty() => format!(" {:>15} ", format!("stream {stream}")),
                    name => format!(" {:<15} ", format!("{name} · {stream}")),
                };
                say(buffer, Rect { width: NAMES.min(area.width), height: 1, ..place }, Line::styled(words, style));
                let cells = right_of(place, NAMES);
                view.draw_lane(rank, lane, cells, buffer);
                places.push(LanePlace { rank: rank.columns.rank, stream: lane.stream, place: cells });
                line += self.lane_height;
            }
            line += self.gap;
        }
        places
    }
}

fn word(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::MicroBatch => "batch",
        other => other.word(),
    }
}

fn is_known(frame: &Frame, kind: SpanKind) -> bool {
    match kind {
        SpanKind::Step => frame.step.is_some(),
        SpanKind::MicroBatch => frame.micro_batch.is_some(),
        SpanKind::Phase => frame.phase.is_some(),
        _ => frame.layer.is_some(),
    }
}

/// What of a frame an annotation of a kind is about; none, where it is about nothing.
fn part(frame: Option<Frame>, kind: SpanKind) -> Option<Frame> {
    let frame = frame.filter(|frame| is_known(frame, kind))?;
    let within = |other: SpanKind| kind >= other;
    Some(Frame {
        step: frame.step,
        micro_batch: frame.micro_batch.filter(|_| within(SpanKind::MicroBatch)),
        phase: frame.phase.filter(|_| within(SpanKind::Phase)),
        layer: frame.layer.filter(|_| within(SpanKind::Layer)),
    })
}

/// What an annotation says, and shorter; a phase says of which micro-batch it is, where no line above does.
fn labels(frame: &Frame, kind: SpanKind, shown: &[SpanKind]) -> [String; 2] {
    let number = |number: Option<String>| number.unwrap_or_default();
    let (step, batch) =
        (number(frame.step.map(|step| step.to_string())), frame.micro_batch.map(|batch| batch.to_string()));
    match kind {
        SpanKind::Step => [format!("step {step}"), step],
        SpanKind::MicroBatch => [number(batch.clone()), number(batch)],
        SpanKind::Layer => [(); 2].map(|()| number(frame.layer.map(|layer| layer.to_string()))),
        _ => {
            let phase = frame.phase.map_or("", |phase| phase.word());
            let letter: String = phase.chars().take(1).map(|letter| letter.to_ascii_uppercase()).collect();
            match batch.filter(|_| !shown.contains(&SpanKind::MicroBatch)) {
                Some(batch) => [format!("{phase} {batch}"), format!("{letter}{batch}")],
                None => [phase.to_owned(), letter],
            }
        }
    }
}

/// A label and a line as long as it goes on. A label that is cut says nothing.
fn labelled(labels: &[String; 2], cells: usize) -> String {
    let length = |label: &String| label.chars().count();
    if let Some(label) = labels.iter().find(|label| length(label) < cells) {
        return "▏".chars().chain(label.chars()).chain(std::iter::repeat('─')).take(cells).collect();
    }
    match labels.iter().find(|label| length(label) == 1) {
        Some(letter) if cells == 1 => letter.clone(),
        _ => "▏".chars().chain(std::iter::repeat('─')).take(cells).collect(),
    }
}

/// Draws one line of annotations: each has its name where it begins, and a line as long as it goes on.
fn draw_frames(
    view: &LaneView<'_>,
    rank: &RankDetail,
    kind: SpanKind,
    shown: &[SpanKind],
    place: Rect,
    buffer: &mut Buffer,
) {
    let mut values: Vec<Option<Frame>> = (0..place.width)
        .map(|cell| {
            let column = rank.columns.column_at(rank.time.own(view.cell(cell, place.width)).from.0)?;
            part(*rank.columns.frames.get(column)?, kind)
        })
        .collect();
    if kind == SpanKind::Step {
        go_on(&mut values);
    }
    let mut from = 0;
    for same in values.chunk_by(|one, other| one == other) {
        if let Some(frame) = same.first().copied().flatten() {
            let line = labelled(&labels(&frame, kind, shown), same.len());
            let style = match (kind, frame.phase) {
                (SpanKind::Phase, Some(phase)) => view.theme.phase(phase),
                _ => view.theme.quiet(),
            };
            let place = Rect { x: place.x + from as u16, width: same.len() as u16, ..place };
            say(buffer, place, Line::styled(line, style));
        }
        from += same.len();
    }
}

/// A step goes on while nothing runs in it.
fn go_on(values: &mut [Option<Frame>]) {
    let mut last: Option<(usize, Frame)> = None;
    for index in 0..values.len() {
        let Some(frame) = values[index] else { continue };
        if let Some((before, same)) = last.filter(|(_, other)| *other == frame) {
            values[before..index].fill(Some(same));
        }
        last = Some((index, frame));
    }
}

/// How lanes are view.
pub(super) struct LaneView<'a> {
    pub(super) theme: &'a Theme,
    /// Which stretch, in the clock all ranks are aligned to.
    pub(super) window: Window,
    /// What is selected, and from where to where that goes.
    pub(super) selected: Option<&'a Selected>,
    pub(super) selected_time: Option<(i64, i64)>,
}

impl LaneView<'_> {
    /// The time of a cell of so many: from its middle to its end.
    fn cell(&self, cell: u16, cells: u16) -> Window {
        let length = i128::from(stretch::length(self.window));
        let at = |halves: i128| {
            let offset = length * halves / (2 * i128::from(cells.max(1)));
            Nanos(self.window.from.0.saturating_add(offset as i64))
        };
        Window { from: at(2 * i128::from(cell) + 1), to: at(2 * i128::from(cell) + 2) }
    }

    fn draw_lane(&self, rank: &RankDetail, lane: &LaneColumns, place: Rect, buffer: &mut Buffer) {
        for cell in 0..place.width {
            let Some(column) = rank.columns.column_at(rank.time.own(self.cell(cell, place.width)).from.0) else {
                continue;
            };
            let length = rank.columns.border(column + 1).saturating_sub(rank.columns.border(column)).max(1);
            if let Some(column) = lane.columns.get(column) {
                self.draw_column(column, length, cell, place, buffer);
            }
        }
        for span in &lane.long {
            let time = (rank.time.aligned(span.start), rank.time.aligned(span.end));
            if let Some((from, to)) = stretch::cells(self.window, time, place.width) {
                let place = Rect { x: place.x + from, width: to - from, ..place };
                self.draw_name(&span.name, span.family, place, buffer);
            }
        }
        let is_here = self.selected.is_some_and(|selected| selected.is_on(rank.columns.rank, lane.stream));
        if let Some((from, to)) =
            self.selected_time.filter(|_| is_here).and_then(|time| stretch::cells(self.window, time, place.width))
        {
            let place = Rect { x: place.x + from, width: to - from, ..place };
            self.draw_selected(place, buffer);
        }
    }

    /// Marks what is selected; without colors, by its ends.
    fn draw_selected(&self, place: Rect, buffer: &mut Buffer) {
        for at in place.positions() {
            let Some(cell) = buffer.cell_mut(at) else { continue };
            cell.set_style(self.theme.picked(cell.symbol(), cell.bg));
            if !self.theme.has_colors() {
                match (at.x == place.x, at.x + 1 == place.right()) {
                    (true, true) => _ = cell.set_char('#'),
                    (true, false) => _ = cell.set_char('['),
                    (false, true) => _ = cell.set_char(']'),
                    (false, false) => {}
                }
            }
        }
    }

    /// What a column did: as high as it was busy.
    fn draw_column(&self, column: &Column, length: i64, cell: u16, place: Rect, buffer: &mut Buffer) {
        let Some(busiest) = column.busiest() else { return };
        let busy = column.busy().min(length);
        let bottom = (place.x + cell, place.bottom().saturating_sub(1));
        if place.height > 1 {
            let parts: Vec<Part> = Family::ALL
                .iter()
                .zip(column.busy_ns)
                .filter(|(_, time)| *time > 0)
                .map(|(family, time)| Part { mark: self.theme.family(*family), amount: time as f64 })
                .collect();
            let full = length.max(column.busy()) as f64;
            Columns { theme: self.theme, area: place, full }.draw(buffer, cell, 1, &parts);
        }
        let Some(drawn) = buffer.cell_mut(bottom) else { return };
        if place.height > 1 && drawn.symbol() != " " {
            return;
        }
        let mark = self.theme.family(busiest);
        if self.theme.has_colors() {
            let eighths = (busy.saturating_mul(8) / length).clamp(1, 8);
            drawn.set_char(EIGHTHS[eighths as usize]).set_fg(mark.color);
        } else {
            let is_busy = busy.saturating_mul(2) >= length;
            drawn.set_char(if is_busy { mark.letter } else { mark.letter.to_ascii_lowercase() });
        }
    }

    /// The name of a span, in the middle of it, and where it begins.
    fn draw_name(&self, name: &str, family: Family, place: Rect, buffer: &mut Buffer) {
        let mark = self.theme.family(family);
        let (style, begin) = if self.theme.has_colors() {
            (Style::new().fg(Color::Indexed(16)).bg(mark.color), '▏')
        } else {
            (Style::new(), '|')
        };
        for line in 0..place.height {
            if let Some(cell) = buffer.cell_mut((place.x, place.y + line)) {
                cell.set_char(begin).set_style(style);
            }
        }
        let room = usize::from(place.width).saturating_sub(3);
        let name = text::shortened(&text::printable(name), room);
        // A few letters of a long name say nothing.
        if name.chars().count() >= 3 && (!name.contains('…') || room >= 8) {
            let name = format!(" {name} ");
            let width = name.chars().count() as u16;
            let x = place.x + 1 + (place.width - 1).saturating_sub(width) / 2;
            let y = place.y + place.height.saturating_sub(1) / 2;
            say(
                buffer,
                Rect { x, y, width: width.min(place.right().saturating_sub(x)), height: 1 },
                Line::styled(name, style),
            );
        }
    }
}
