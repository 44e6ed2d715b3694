//! The whole job at a glance: a cell for each rank, colored by a figure.

mod bars;
mod figure;
mod grid;
mod outliers;

use std::sync::Arc;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, Spread};
use stepscope_plan::text;
use stepscope_traces::Rank;

use self::{
    figure::{RankCell, RankFigure, cells},
    grid::{Grid, Scale},
};
use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding, RANK_TIMELINE},
    scene::Scene,
    widgets::{Cursor, below, right_of, row, say, say_right},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding {
        keys: &[KeyCode::Enter],
        action: Action::Take,
        short: "focus",
        long: "show only the rank under the cursor",
    },
    RANK_TIMELINE,
    Binding { keys: &[KeyCode::Char('s')], action: Action::Sort, short: "figure", long: "color by the next figure" },
    Binding { keys: &[KeyCode::Left, KeyCode::Char('h')], action: Action::Left, short: "move", long: "previous rank" },
    Binding { keys: &[KeyCode::Right, KeyCode::Char('l')], action: Action::Right, short: "move", long: "next rank" },
    Binding { keys: &[KeyCode::Up, KeyCode::Char('k')], action: Action::Up, short: "move", long: "rank above" },
    Binding { keys: &[KeyCode::Down, KeyCode::Char('j')], action: Action::Down, short: "move", long: "rank below" },
    Binding { keys: &[KeyCode::PageUp], action: Action::PageUp, short: "", long: "page up" },
    Binding { keys: &[KeyCode::PageDown], action: Action::PageDown, short: "", long: "page down" },
    Binding { keys: &[KeyCode::Home, KeyCode::Char('g')], action: Action::Top, short: "", long: "first rank" },
    Binding { keys: &[KeyCode::End, KeyCode::Char('G')], action: Action::Bottom, short: "", long: "last rank" },
];

/// How much room is between the figures of a rank and what stands out.
const GAP: u16 = 2;
/// From this height on a line is free above the cells.
const HIGH: u16 = 20;
/// Where there is less room than this beside figures, nothing stands there.
const LEAST_BESIDE: u16 = 20;

/// The whole job at a glance.
#[derive(Default)]
pub(crate) struct Ranks {
    /// What cells are colored by; what tells ranks apart, until another one is chosen.
    figure: Option<RankFigure>,
    /// The rank under the cursor; the worst one until it is moved.
    cursor: Option<Rank>,
    lines: Cursor,
    /// What there is of ranks, of an analysis: it is made once for each.
    cells: Option<(Arc<Analysis>, Vec<RankCell>)>,
    grid: Grid,
    /// Where the grid is, and which of its lines is the first.
    area: Rect,
    first: usize,
}

impl ViewBody for Ranks {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let Some(analysis) = &scene.snapshot.analysis else { return };
        if !self.cells.as_ref().is_some_and(|(made_of, _)| Arc::ptr_eq(made_of, analysis)) {
            self.cells = Some((analysis.clone(), cells(analysis, &scene.snapshot.memory)));
        }
        let Some((_, cells)) = &self.cells else { return };
        let figure = self.figure.unwrap_or_else(|| RankFigure::opening(cells));
        let spread = figure.spread(cells);
        if self.cursor.is_none_or(|rank| cells.iter().all(|cell| cell.rank != rank)) {
            self.cursor = figure.worst(cells);
        }
        let layout = scene.layout().and_then(|layout| layout.grid);
        draw_title(scene, figure, cells, row(area, 0), buffer);
        // Who stands out comes before all others.
        let upper = (RankFigure::ALL.len() as u16 + 2).min(area.height / 2);
        let first = below(Rect { height: upper, ..area }, 1);
        if let Some(cell) = self.cursor.and_then(|rank| cells.iter().find(|cell| cell.rank == rank)) {
            let place = Rect { width: first.width.min(figure::WIDTH), ..first };
            figure::draw(scene, (cell, cells), layout.as_ref(), place, buffer);
        }
        let beside = right_of(first, figure::WIDTH + GAP);
        if beside.width >= LEAST_BESIDE {
            outliers::draw(scene, figure, &spread, cells, beside, buffer);
        }
        let lower = below(area, upper + u16::from(area.height >= HIGH));
        draw_legend(scene, figure, (&spread, cells), row(lower, 0), buffer);
        let grid = below(lower, 1);
        let ranks: Vec<Rank> = cells.iter().map(|cell| cell.rank).collect();
        self.grid = Grid::of(&ranks, layout.as_ref(), grid.width, grid.height);
        let scale = Scale { theme, figure, spread: &spread, focus: scene.focus, cursor: self.cursor };
        self.lines.seen(self.grid.lines.len(), grid.height.into());
        self.lines.choose(self.cursor.and_then(|rank| self.grid.place(rank)).map_or(0, |(line, _)| line));
        let seen = self.lines.seen(self.grid.lines.len(), grid.height.into());
        (self.area, self.first) = (grid, seen.start);
        let hidden = self.grid.lines.len() - seen.end;
        if hidden > 0 {
            let words = format!("↓ {} ", text::counted(hidden as u64, "more line"));
            say_right(buffer, row(lower, 0), Line::styled(words, theme.warning()));
        }
        let drawn = seen.len() as u16;
        self.grid.draw(&scale, cells, seen, grid, buffer);
        let rest = below(grid, drawn + 1);
        if rest.height >= bars::LEAST {
            bars::draw(scene, (analysis, cells), (figure, self.cursor), rest, buffer);
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        if let (Action::Sort, Some((_, cells))) = (action, &self.cells) {
            self.figure = Some(self.figure.unwrap_or_else(|| RankFigure::opening(cells)).next());
        }
        let Some((line, column)) = self.cursor.and_then(|rank| self.grid.place(rank)) else {
            return;
        };
        let page = usize::from(self.area.height).max(1);
        let next = match action {
            Action::Left => self.grid.beside(line, column, -1),
            Action::Right => self.grid.beside(line, column, 1),
            Action::Up => self.grid.at(line.saturating_sub(1), column),
            Action::Down => self.grid.at(line + 1, column),
            Action::PageUp => self.grid.at(line.saturating_sub(page), column),
            Action::PageDown => self.grid.at(line + page, column),
            Action::Top => self.grid.at(0, 0),
            Action::Bottom => self.grid.at(usize::MAX, usize::MAX),
            _ => None,
        };
        self.cursor = next.or(self.cursor);
    }

    fn take(&mut self, _scene: &Scene<'_>) -> Option<StepOrRank> {
        self.cursor.map(StepOrRank::Rank)
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        if !self.area.contains((event.column, event.row).into()) {
            return None;
        }
        let line = self.first + usize::from(event.row - self.area.y);
        let rank = self.grid.under(line, event.column - self.area.x)?;
        self.cursor = Some(rank);
        Some(StepOrRank::Rank(rank))
    }
}

/// What is seen.
fn draw_title(scene: &Scene<'_>, figure: RankFigure, cells: &[RankCell], place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let ranks = text::counted(cells.len() as u64, "rank");
    let title = [
        Span::styled(" Ranks", theme.title()),
        Span::styled(format!("  {ranks} by "), theme.quiet()),
        Span::styled(figure.name(), theme.strong()),
        Span::styled(format!(", {}", figure.words(scene)), theme.quiet()),
    ];
    say(buffer, place, Line::from(title.to_vec()));
}

/// What colors mean, where there is something to compare.
fn draw_legend(
    scene: &Scene<'_>,
    figure: RankFigure,
    (spread, cells): (&Spread, &[RankCell]),
    place: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let mut legend = vec![Span::raw(" ")];
    match spread.range {
        Some(_) if cells.len() < 2 => {}
        Some((least, most)) => {
            legend.push(Span::styled(format!("{} ", figure.written(least)), theme.quiet()));
            for level in 0..10 {
                let mark = theme.level(f64::from(level) / 10.0);
                legend.push(Span::styled(mark.letter.to_string(), theme.leveled(mark)));
            }
            legend.push(Span::styled(format!(" {}", figure.written(most)), theme.quiet()));
            legend.push(Span::styled("   ! outlier", theme.bad()));
        }
        None => legend.push(Span::styled(figure.why_unknown(scene), theme.quiet())),
    }
    say(buffer, place, Line::from(legend));
}
