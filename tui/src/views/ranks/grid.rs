//! Where each rank's cell is: a band for each stage, and in it replicas with their tensor shards beside each other.

use std::{collections::HashMap, ops::Range};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::Spread;
use stepscope_plan::ParallelLayout;
use stepscope_traces::Rank;

use super::figure::{RankCell, RankFigure};
use crate::{
    theme::Theme,
    widgets::{row, say},
};

/// How wide cells may be: with the figure written in them, or a digit alone.
const WIDTHS: [u16; 3] = [11, 3, 2];
/// From this width on the figure stands in a cell.
const WRITTEN: u16 = 11;

/// Where cells are.
#[derive(Default)]
pub(super) struct Grid {
    pub(super) lines: Vec<GridLine>,
    /// How wide what stands before the cells is, and each of them.
    label: u16,
    cell: u16,
    /// Between so many cells there is some room.
    together: usize,
}

/// Cells beside each other.
pub(super) struct GridLine {
    label: String,
    ranks: Vec<Rank>,
}

/// How cells look.
pub(super) struct Scale<'a> {
    pub(super) theme: &'a Theme,
    pub(super) figure: RankFigure,
    pub(super) spread: &'a Spread,
    pub(super) focus: Option<Rank>,
    pub(super) cursor: Option<Rank>,
}

impl Grid {
    /// Arranges ranks in an area: as wide as they all fit, or else as narrow as can be.
    pub(super) fn of(ranks: &[Rank], layout: Option<&ParallelLayout>, width: u16, height: u16) -> Grid {
        let layout = layout.filter(|layout| ranks.iter().all(|rank| u64::from(rank.0) < layout.world_size()));
        let grids = WIDTHS.iter().map(|cell| Grid::with_cells(*cell, ranks, layout, width));
        let mut narrowest = Grid::default();
        for grid in grids {
            if grid.lines.len() <= height.into() {
                return grid;
            }
            narrowest = grid;
        }
        narrowest
    }

    fn with_cells(cell: u16, ranks: &[Rank], layout: Option<&ParallelLayout>, width: u16) -> Grid {
        let stage =
            |rank: &Rank| layout.filter(|layout| layout.pp > 1).map(|layout| layout.coordinates(rank.0.into()).stage);
        let digits = ranks.iter().map(|rank| rank.to_string().len()).max().unwrap_or(1);
        let stages = layout.map_or(1, |layout| layout.pp);
        let stage_words = if stages > 1 { "stage ".len() + stages.to_string().len() + 1 } else { 0 };
        let label = (stage_words + digits + 2) as u16;
        let room = usize::from(width.saturating_sub(label));
        let shards = layout.map_or(1, |layout| usize::try_from(layout.tp).unwrap_or(usize::MAX));
        // Shards of a replica stand together, where they fit beside each other.
        let together = if shards > 1 && shards <= room / usize::from(cell) { shards } else { 0 };
        let per_line = match together {
            0 => round(room / usize::from(cell)),
            shards => room / (shards * usize::from(cell) + 1) * shards,
        };
        let mut lines = Vec::new();
        for band in ranks.chunk_by(|one, other| stage(one) == stage(other)) {
            for (index, ranks) in band.chunks(per_line.max(1)).enumerate() {
                let first = ranks.first().map_or_else(String::new, Rank::to_string);
                let stage =
                    stage(&ranks[0]).filter(|_| index == 0).map_or_else(String::new, |stage| format!("stage {stage} "));
                lines.push(GridLine {
                    label: format!(" {stage:<stage_words$}{first:>digits$} "),
                    ranks: ranks.to_vec(),
                });
            }
        }
        Grid { lines, label, cell, together }
    }

    /// The line and the column of a rank.
    pub(super) fn place(&self, rank: Rank) -> Option<(usize, usize)> {
        let mut lines = self.lines.iter().enumerate();
        lines.find_map(|(line, cells)| Some((line, cells.ranks.iter().position(|other| *other == rank)?)))
    }

    /// Who is in a line and a column, or nearest to there.
    pub(super) fn at(&self, line: usize, column: usize) -> Option<Rank> {
        let ranks = &self.lines.get(line.min(self.lines.len().checked_sub(1)?))?.ranks;
        ranks.get(column.min(ranks.len().checked_sub(1)?)).copied()
    }

    /// Who is before or after a place, around the ends of lines.
    pub(super) fn beside(&self, line: usize, column: usize, places: isize) -> Option<Rank> {
        match column.checked_add_signed(places) {
            None => self.at(line.checked_sub(1)?, usize::MAX),
            Some(column) if column < self.lines.get(line)?.ranks.len() => self.at(line, column),
            Some(_) => self.at(Some(line + 1).filter(|next| *next < self.lines.len())?, 0),
        }
    }

    /// Where a column begins.
    fn x(&self, column: usize) -> usize {
        let gaps = column.checked_div(self.together).unwrap_or(0);
        usize::from(self.label) + column * usize::from(self.cell) + gaps
    }

    /// Who is under a point, so many columns of the screen from the left.
    pub(super) fn under(&self, line: usize, x: u16) -> Option<Rank> {
        let ranks = &self.lines.get(line)?.ranks;
        let is_there = |column: &usize| (self.x(*column)..self.x(*column) + usize::from(self.cell)).contains(&x.into());
        (0..ranks.len()).find(is_there).map(|column| ranks[column])
    }

    /// Draws some of its lines.
    pub(super) fn draw(
        &self,
        scale: &Scale<'_>,
        cells: &[RankCell],
        seen: Range<usize>,
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let cells: HashMap<Rank, &RankCell> = cells.iter().map(|cell| (cell.rank, cell)).collect();
        for (index, line) in seen.enumerate() {
            let place = row(area, index as u16);
            let Some(line) = self.lines.get(line) else { return };
            say(buffer, place, Line::styled(line.label.clone(), scale.theme.quiet()));
            for (column, rank) in line.ranks.iter().enumerate() {
                let from = u16::try_from(self.x(column)).unwrap_or(u16::MAX);
                let place = Rect { x: place.x.saturating_add(from), width: self.cell, ..place }.intersection(area);
                let value = cells.get(rank).and_then(|cell| scale.figure.of(cell));
                say(buffer, place, Line::from(scale.cell(*rank, value, self.cell)));
            }
        }
    }
}

/// A number of cells that people count easily.
fn round(cells: usize) -> usize {
    match cells {
        0..8 => cells,
        8..16 => 8,
        16..32 => 16,
        32..64 => 32,
        _ => cells / 64 * 64,
    }
}

impl Scale<'_> {
    /// A cell: its digit or its figure, on its color; a mark where it stands out, and brackets where the cursor is.
    fn cell(&self, rank: Rank, value: Option<f64>, width: u16) -> Vec<Span<'static>> {
        let inner = usize::from(width) - 1;
        let (words, style) = match value {
            None => ("-".to_owned(), self.theme.quiet()),
            Some(value) => {
                let mark = self.theme.level(self.spread.share(value));
                let stands_out = self.spread.stands_out(value);
                let words = match (width >= WRITTEN, stands_out) {
                    (true, true) => format!("{}!", self.figure.written(value)),
                    (true, false) => format!("{} ", self.figure.written(value)),
                    (false, true) => "!".into(),
                    (false, false) => mark.letter.to_string(),
                };
                (words, self.theme.leveled(mark))
            }
        };
        let is_marked = self.cursor == Some(rank) || self.focus == Some(rank);
        let style = if is_marked { self.theme.chosen().patch(self.theme.strong()) } else { style };
        vec![Span::styled(format!("{words:>inner$}"), style), Span::raw(" ")]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranks(count: u32) -> Vec<Rank> {
        (0..count).map(Rank).collect()
    }

    #[test]
    fn stages_have_bands_and_shards_stand_together() {
        let layout = ParallelLayout { dp: 4, tp: 2, pp: 2, ..ParallelLayout::default() };
        let grid = Grid::with_cells(2, &ranks(16), Some(&layout), 30);
        let lines: Vec<(&str, usize)> = grid.lines.iter().map(|line| (line.label.as_str(), line.ranks.len())).collect();
        assert_eq!(lines, [(" stage 0  0 ", 6), ("          6 ", 2), (" stage 1  8 ", 6), ("         14 ", 2)]);
        assert_eq!([grid.x(0), grid.x(1), grid.x(2)], [12, 14, 17], "some room between replicas");
        assert_eq!(grid.under(2, 17), Some(Rank(10)));
        assert_eq!(grid.under(2, 16), None);
        assert_eq!(grid.beside(1, 1, 1), Some(Rank(8)));
        assert_eq!(grid.beside(0, 0, -1), None);
        assert_eq!(grid.at(9, 9), Some(Rank(15)));
    }

    #[test]
    fn a_layout_of_fewer_ranks_says_nothing() {
        let layout = ParallelLayout { pp: 2, ..ParallelLayout::default() };
        let grid = Grid::of(&ranks(3), Some(&layout), 80, 20);
        assert_eq!(grid.lines.len(), 1);
    }

    proptest! {
        #[test]
        fn every_rank_has_one_cell(count in 0..700_u32, tp in 1..9_u64, pp in 1..5_u64, width in 1..250_u16, height in 1..60_u16) {
            let layout = ParallelLayout { dp: 100, tp, pp, ..ParallelLayout::default() };
            let grid = Grid::of(&ranks(count), Some(&layout), width, height);
            let seen: Vec<Rank> = grid.lines.iter().flat_map(|line| line.ranks.clone()).collect();
            prop_assert_eq!(seen, ranks(count));
            for (line, cells) in grid.lines.iter().enumerate() {
                for (column, rank) in cells.ranks.iter().enumerate() {
                    prop_assert_eq!(grid.place(*rank), Some((line, column)));
                    prop_assert_eq!(grid.under(line, grid.x(column) as u16), Some(*rank));
                }
            }
        }
    }
}
