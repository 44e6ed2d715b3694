//! What takes the time, by name: how often, how long, how near to what the device can do.

mod detail;
mod families;
mod order;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::KernelFigures;
use stepscope_plan::text;
use stepscope_traces::without_signature;

use self::order::Order;
use super::{StepOrRank, ViewBody};
use crate::{
    filter::Filter,
    keys::{Action, Binding, list_keys},
    scene::Scene,
    widgets::{Column, Cursor, Side, Table, below, row, say, say_right},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = list_keys![
    "select",
    Binding {
        keys: &[KeyCode::Char('/')],
        action: Action::Filter,
        short: "filter",
        long: "filter kernels by name or family",
    },
    Binding { keys: &[KeyCode::Char('s')], action: Action::Sort, short: "sort", long: "sort by the next column" },
];

const NAME: usize = 1;
const BAR: usize = 4;
const RATE: usize = 7;
const INTENSITY: usize = 8;
const ROOF: usize = 9;
const SPREAD: usize = 10;

const COLUMNS: [Column; 11] = [
    Column { header: "", width: 1, side: Side::Left, left_out: 0 },
    Column { header: "kernel", width: 20, side: Side::Grows, left_out: 0 },
    Column { header: "total", width: 8, side: Side::Right, left_out: 0 },
    Column { header: "share", width: 6, side: Side::Right, left_out: 0 },
    Column { header: "", width: 14, side: Side::Left, left_out: 3 },
    Column { header: "count", width: 9, side: Side::Right, left_out: 2 },
    Column { header: "mean", width: 8, side: Side::Right, left_out: 1 },
    Column { header: "rate", width: 14, side: Side::Right, left_out: 4 },
    Column { header: "FLOP/B", width: 7, side: Side::Right, left_out: 6 },
    Column { header: "of roofline", width: 15, side: Side::Right, left_out: 1 },
    Column { header: "range over ranks", width: 23, side: Side::Right, left_out: 7 },
];

/// A kernel that is at most so near to its roof, and takes time that matters, makes one look.
const FAR_FROM_ROOF: f64 = 0.3;
const MATTERS: f64 = 0.05;

/// What takes the time, by name.
#[derive(Default)]
pub(crate) struct Kernels {
    filter: Filter,
    order: Order,
    cursor: Cursor,
    /// Where lines are, and which is the first, for the mouse.
    lines: Rect,
    first: usize,
}

impl ViewBody for Kernels {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let all = scene.snapshot.analysis.as_ref().map_or(&[][..], |analysis| &analysis.kernels);
        if all.is_empty() {
            let words = " no kernels were recorded";
            say(buffer, row(area, 0), Line::styled(words, theme.quiet()));
            return;
        }
        let mut kernels: Vec<&KernelFigures> = all.iter().filter(|kernel| self.is_asked_for(kernel)).collect();
        self.order.sort(&mut kernels);
        families::draw(scene, area, buffer);
        self.draw_title(scene, (kernels.len(), all.len()), row(area, families::HEIGHT), buffer);
        let table = below(area, families::HEIGHT + 1);
        let detail = detail::height(table.height);
        let lines = below(Rect { height: table.height.saturating_sub(detail), ..table }, 1);
        let seen = self.cursor.seen(kernels.len(), lines.height.into());
        (self.lines, self.first) = (lines, seen.start);
        let hidden = kernels.len() - seen.end;
        if hidden > 0 {
            let words = Line::styled(format!("↓ {hidden} more "), theme.warning());
            say_right(buffer, row(area, families::HEIGHT), words);
        }
        let several = scene.snapshot.analysis.as_ref().is_some_and(|analysis| analysis.ranks.len() > 1);
        let columns = Table::new(theme, &COLUMNS, |column| has_something(column, all, several), area.width);
        columns.draw_header(buffer, row(table, 0), Some(self.order.column()));
        let longest = all.iter().map(|kernel| kernel.share).fold(0.0, f64::max);
        for (line, index) in seen.enumerate() {
            let cells = cells(scene, kernels[index], &columns, longest);
            columns.draw(buffer, row(lines, line as u16), cells, self.cursor.chosen() == Some(index));
        }
        if let Some(kernel) = self.cursor.chosen().map(|index| kernels[index]) {
            detail::draw(scene, kernel, below(table, table.height - detail), buffer);
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        match action {
            Action::Sort => {
                self.order = self.order.next();
                self.cursor.choose(0);
            }
            other => self.cursor.act(other),
        }
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        Some(&mut self.filter)
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        if self.lines.contains((event.column, event.row).into()) {
            self.cursor.choose(self.first + usize::from(event.row - self.lines.y));
        }
        None
    }
}

impl Kernels {
    fn is_asked_for(&self, kernel: &KernelFigures) -> bool {
        self.filter.lets_through(&[&kernel.name, kernel.family.word()])
    }

    fn draw_title(&self, scene: &Scene<'_>, (shown, all): (usize, usize), place: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let ranks = scene.snapshot.analysis.as_ref().map_or(0, |analysis| analysis.ranks.len());
        let several = if ranks > 1 { format!(", sums of {ranks} ranks") } else { String::new() };
        let count = if shown == all { format!("{all}") } else { format!("{shown} of {all}") };
        let mut spans = vec![
            Span::styled(" Kernels", theme.title()),
            Span::styled(format!("  {count}{several}, by {}", self.order.words()), theme.quiet()),
        ];
        spans.extend(self.filter.spans(theme));
        if shown == 0 {
            spans.push(Span::styled("  no match", theme.warning()));
        }
        say(buffer, place, Line::from(spans));
    }
}

/// Whether there is something to say in a column.
fn has_something(column: usize, kernels: &[KernelFigures], several_ranks: bool) -> bool {
    match column {
        RATE => kernels.iter().any(|kernel| kernel.rates.flops_per_second.or(kernel.rates.bytes_per_second).is_some()),
        INTENSITY => kernels.iter().any(|kernel| kernel.rates.arithmetic_intensity.is_some()),
        ROOF => kernels.iter().any(|kernel| kernel.rates.roof_share.or(kernel.rates.peak_share).is_some()),
        SPREAD => several_ranks,
        _ => true,
    }
}

/// A name that a line has room for: parameters say little.
fn short_name(kernel: &KernelFigures, width: usize) -> String {
    text::shortened(&text::printable(without_signature(&kernel.name)), width)
}

fn cells(scene: &Scene<'_>, kernel: &KernelFigures, table: &Table<'_>, longest: f64) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let mark = theme.family(kernel.family);
    let (glyph, style) = theme.filled(mark);
    let letter = if theme.has_colors() { mark.letter } else { glyph };
    let unknown = || Line::styled("-", theme.quiet());
    let known = |value: Option<String>| value.map_or_else(unknown, Line::raw);
    // Of communication and copies, a rate would be another figure's.
    let rate = kernel.rates.flops_per_second.map(text::flops).or(kernel.rates.bytes_per_second.map(text::bandwidth));
    let roof = match (kernel.rates.bound, kernel.rates.roof_share) {
        (Some(bound), Some(share)) => {
            let words = format!("{} {:>6}", detail::word(bound), text::percent(share));
            let is_slow = share < FAR_FROM_ROOF && kernel.share > MATTERS;
            if is_slow { Line::styled(format!("! {words}"), theme.warning()) } else { Line::raw(words) }
        }
        _ => {
            kernel.rates.peak_share.map_or_else(unknown, |share| Line::raw(format!("peak {:>6}", text::percent(share))))
        }
    };
    let bar = (kernel.share / longest * f64::from(table.width(BAR))).round() as usize;
    vec![
        Line::styled(letter.to_string(), style),
        Line::raw(short_name(kernel, table.width(NAME).into())),
        Line::raw(text::duration(kernel.total_ns)),
        Line::raw(text::percent(kernel.share)),
        Line::styled(glyph.to_string().repeat(bar), style),
        Line::raw(text::count(kernel.count)),
        Line::raw(text::duration(kernel.mean_ns as i64)),
        known(rate),
        known(kernel.rates.arithmetic_intensity.map(text::intensity)),
        roof,
        Line::raw(format!("{} to {}", text::duration(kernel.least_rank_ns), text::duration(kernel.most_rank_ns))),
    ]
}
