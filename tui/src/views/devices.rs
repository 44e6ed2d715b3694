//! What devices say of themselves: how busy, how hot, how fast, and whether something holds them back.

mod counters;
mod detail;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::DeviceFigures;
use stepscope_plan::text;
use stepscope_traces::{Rank, State};

use self::counters::{COUNTERS, Held, Moment, errors};
use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding, RANK_TIMELINE, list_keys},
    scene::Scene,
    widgets::{Column, Cursor, Side, Table, below, fitting, row, say},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = list_keys![
    "select",
    Binding {
        keys: &[KeyCode::Enter],
        action: Action::Take,
        short: "focus",
        long: "show only the rank of the selected device",
    },
    RANK_TIMELINE,
];

/// The rank, what holds it back, errors, and then a column for each counter.
const COLUMNS: [Column; 3 + COUNTERS.len()] = {
    let mut columns =
        [const { Column { header: "rank", width: 5, side: Side::Right, left_out: 0 } }; 3 + COUNTERS.len()];
    columns[1] = Column { header: "throttled", width: 15, side: Side::Left, left_out: 0 };
    columns[2] = Column { header: "errors", width: 8, side: Side::Left, left_out: 0 };
    let mut index = 0;
    while index < COUNTERS.len() {
        columns[3 + index] = COUNTERS[index].column();
        index += 1;
    }
    columns
};
const HELD_BACK: usize = 1;
const ERRORS: usize = 2;

/// What devices say of themselves.
#[derive(Default)]
pub(crate) struct Devices {
    cursor: Cursor,
    /// Whether the cursor was moved here since a rank was focused on.
    followed: Option<Rank>,
    lines: Rect,
    first: usize,
}

impl ViewBody for Devices {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let devices = scene.snapshot.analysis.as_ref().map_or(&[][..], |analysis| &analysis.devices);
        if devices.is_empty() {
            let words = " no device data: NVIDIA GPUs are sampled while a run is recorded; `stepscope doctor` checks whether that works";
            for (line, words) in text::wrapped(words, area.width.saturating_sub(2).into()).iter().enumerate() {
                say(buffer, row(area, line as u16), Line::styled(format!(" {words}"), theme.quiet()));
            }
            return;
        }
        let detail = detail::height(area.height, devices.len());
        let lines = below(Rect { height: area.height.saturating_sub(detail), ..area }, 2);
        self.cursor.seen(devices.len(), lines.height.into());
        if scene.focus != self.followed {
            self.followed = scene.focus;
            let focused = devices.iter().position(|device| Some(device.rank) == scene.focus);
            focused.into_iter().for_each(|index| self.cursor.choose(index));
        }
        let seen = self.cursor.seen(devices.len(), lines.height.into());
        (self.lines, self.first) = (lines, seen.start);
        let moment = moment(scene);
        draw_title(scene, devices, moment, row(area, 0), buffer);
        let table = Table::new(theme, &COLUMNS, |column| has_something(column, devices), area.width);
        table.draw_header(buffer, row(area, 1), None);
        for (line, index) in seen.enumerate() {
            let cells = cells(scene, &devices[index], moment);
            let is_chosen = devices.len() > 1 && self.cursor.chosen() == Some(index);
            table.draw(buffer, row(lines, line as u16), cells, is_chosen);
        }
        if let Some(device) = self.cursor.chosen().map(|index| &devices[index]) {
            detail::draw(scene, device, below(area, area.height - detail), buffer);
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        self.cursor.act(action);
    }

    fn take(&mut self, scene: &Scene<'_>) -> Option<StepOrRank> {
        let devices = &scene.snapshot.analysis.as_ref()?.devices;
        Some(StepOrRank::Rank(devices.get(self.cursor.chosen()?)?.rank))
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        if self.lines.contains((event.column, event.row).into()) {
            self.cursor.choose(self.first + usize::from(event.row - self.lines.y));
        }
        None
    }
}

/// While a run is recorded, now matters; after it, what it was like.
fn moment(scene: &Scene<'_>) -> Moment {
    if scene.snapshot.state() == Some(State::Recording) { Moment::Now } else { Moment::Mean }
}

fn draw_title(scene: &Scene<'_>, devices: &[DeviceFigures], moment: Moment, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let samples = devices.iter().flat_map(|device| device.counters.values()).map(|figures| figures.samples).max();
    let what = match moment {
        Moment::Now => "now".into(),
        Moment::Mean => format!("mean of {}", text::counted(samples.unwrap_or(0), "sample")),
    };
    let mut spans = vec![
        Span::styled(" Devices", theme.title()),
        Span::styled(format!("  {what} in {}", scene.scope()), theme.quiet()),
    ];
    let held = devices.iter().filter(|device| Held::of(device).is_some()).count();
    if held > 0 {
        let who = if devices.len() == 1 { "it is".into() } else { format!("{held} of {} are", devices.len()) };
        spans.push(Span::styled(format!("  {who} throttled"), theme.bad()));
    }
    if let Some(ranks) = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.run.ranks_on_a_device) {
        spans.push(Span::styled(format!("  {ranks} ranks share one GPU"), theme.warning()));
    }
    say(buffer, place, fitting(spans, place.width));
}

/// Whether there is something to say in a column.
fn has_something(column: usize, devices: &[DeviceFigures]) -> bool {
    match column {
        HELD_BACK => devices.iter().any(|device| device.counters.contains_key("gpu.throttle")),
        ERRORS => devices.iter().any(|device| errors(device) > 0.0),
        _ => column
            .checked_sub(3)
            .is_none_or(|index| devices.iter().any(|device| device.counters.contains_key(COUNTERS[index].name))),
    }
}

fn cells(scene: &Scene<'_>, device: &DeviceFigures, moment: Moment) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let held = match Held::of(device) {
        Some(held) => Line::styled(held.words(), theme.bad()),
        None => Line::styled("no", theme.quiet()),
    };
    let errors = match errors(device) {
        0.0 => Line::default(),
        errors => Line::styled(format!("{errors:.0}"), theme.bad()),
    };
    let mut cells = vec![Line::raw(device.rank.to_string()), held, errors];
    cells.extend(COUNTERS.iter().map(|counter| match device.counters.get(counter.name) {
        Some(figures) => Line::raw(counter.written(moment.of(figures))),
        None => Line::styled("-", theme.quiet()),
    }));
    cells
}
