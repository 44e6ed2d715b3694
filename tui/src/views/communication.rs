//! What ranks say to each other: how fast, how much of it nothing hides, and who waits for whom.

mod axes;
mod waits;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::CollectiveFigures;
use stepscope_plan::text;

use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding, list_keys},
    scene::Scene,
    widgets::{Column, Cursor, Side, Table, below, right_of, row, say},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = list_keys!["scroll"];

const COLUMNS: [Column; 11] = [
    Column { header: "operation", width: 14, side: Side::Grows, left_out: 0 },
    Column { header: "axis", width: 9, side: Side::Left, left_out: 0 },
    Column { header: "ranks", width: 5, side: Side::Right, left_out: 3 },
    Column { header: "count", width: 8, side: Side::Right, left_out: 2 },
    Column { header: "bytes", width: 8, side: Side::Right, left_out: 1 },
    Column { header: "own time", width: 8, side: Side::Right, left_out: 4 },
    Column { header: "waiting", width: 8, side: Side::Right, left_out: 0 },
    Column { header: "exposed", width: 8, side: Side::Right, left_out: 0 },
    Column { header: "busy", width: 8, side: Side::Right, left_out: 6 },
    Column { header: "algorithm", width: 11, side: Side::Right, left_out: 5 },
    Column { header: "bus", width: 11, side: Side::Right, left_out: 1 },
];
const WAITING: usize = 6;

/// How many lines operations have at most, of all there are.
const MOST_OPERATIONS: usize = 10;
/// From this width on, waiting stands beside overlap.
const WIDE: u16 = 110;
/// How wide overlap is there.
const AXES: u16 = 48;

/// What ranks say to each other.
#[derive(Default)]
pub(crate) struct Communication {
    cursor: Cursor,
    waits: waits::Waits,
}

impl ViewBody for Communication {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let Some(analysis) = &scene.snapshot.analysis else { return };
        let figures = &analysis.collectives;
        if figures.is_empty() {
            let words = match analysis.run.world_size {
                1 => " no communication: there is only one rank",
                _ => " no communication recorded: no collectives, sends or receives",
            };
            say(buffer, row(area, 0), Line::styled(words, theme.quiet()));
            return;
        }
        let ranks = analysis.ranks.len();
        let several = if ranks > 1 {
            format!("  times are sums over {ranks} ranks; own time is per rank")
        } else {
            String::new()
        };
        let title = [Span::styled(" Operations", theme.title()), Span::styled(several, theme.quiet())];
        say(buffer, row(area, 0), Line::from(title.to_vec()));
        let lines = figures.len().min(MOST_OPERATIONS).min(usize::from(area.height / 2));
        let knows_waiting = figures.iter().any(|figures| figures.waiting_ns.is_some());
        let table = Table::new(theme, &COLUMNS, |column| column != WAITING || knows_waiting, area.width);
        table.draw_header(buffer, row(area, 1), None);
        let body = below(area, 2);
        for (line, index) in self.cursor.seen(figures.len(), lines).enumerate() {
            let is_chosen = figures.len() > lines && self.cursor.chosen() == Some(index);
            table.draw(buffer, row(body, line as u16), cells(scene, &figures[index]), is_chosen);
        }
        let rest = below(body, lines as u16 + 1);
        if area.width >= WIDE {
            axes::draw(scene, Rect { width: AXES, ..rest }, buffer);
            self.waits.draw(scene, right_of(rest, AXES + 3), buffer);
        } else {
            let lines = axes::draw(scene, rest, buffer);
            self.waits.draw(scene, below(rest, lines + u16::from(lines > 0 && rest.height > 12)), buffer);
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        self.cursor.act(action);
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        self.waits.rank_at(event.column, event.row).map(StepOrRank::Rank)
    }
}

fn cells(scene: &Scene<'_>, figures: &CollectiveFigures) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let known = |value: Option<String>| value.map_or_else(|| Line::styled("-", theme.quiet()), Line::raw);
    // Where most of the time is waiting, a faster link would change little.
    let waits = figures.waiting_ns.is_some_and(|waiting| 2 * waiting > figures.busy_ns);
    let waiting = known(figures.waiting_ns.map(text::duration));
    let hidden = 1.0 - figures.exposed_ns as f64 / figures.busy_ns.max(1) as f64;
    let exposed = Line::raw(text::duration(figures.exposed_ns));
    vec![
        Line::raw(figures.operation.word().replace('_', "-")),
        known(figures.axis.map(|axis| axis.brief_name().to_owned())),
        known(figures.group_size.map(|size| size.to_string())),
        Line::raw(text::count(figures.count)),
        known(figures.bytes.map(text::bytes)),
        known(figures.own_ns.map(text::duration)),
        if waits { waiting.style(theme.warning()) } else { waiting },
        if hidden < 0.5 { exposed.style(theme.warning()) } else { exposed },
        Line::raw(text::duration(figures.busy_ns)),
        known(figures.algorithm_bandwidth.map(text::bandwidth)),
        known(figures.bus_bandwidth.map(text::bandwidth)),
    ]
}
