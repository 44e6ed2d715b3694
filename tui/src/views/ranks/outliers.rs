//! Which ranks stand out in a figure, and by how much.
//!
//! A rank stands out that is above the median by more than three times what ranks usually are away from it (the median of
//! their distances, scaled as for a normal distribution), and by enough to matter.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{
    figure::{RankCell, RankFigure},
    median::median,
};
use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// How many usual distances a rank that stands out is away.
const FAR: f64 = 3.0;
/// The median of distances of a normal distribution, as a part of its deviation, turned around.
const NORMAL: f64 = 1.4826;
/// Below this width there is room for figures, and none for words.
const NARROW: u16 = 44;
/// A part of the step, or of the memory, that matters.
const MATTERS: f64 = 0.02;

/// How the values of a figure are spread over ranks.
pub(super) struct Spread {
    /// From the least to the most, with as much between them as matters.
    pub(super) range: Option<(f64, f64)>,
    median: f64,
    /// Who is above this stands out.
    limit: f64,
    /// Ranks that stand out, the worst first.
    pub(super) outliers: Vec<Rank>,
}

impl Spread {
    pub(super) fn of(figure: RankFigure, cells: &[RankCell]) -> Spread {
        let whole = if figure == RankFigure::Memory { RankFigure::Memory } else { RankFigure::Step };
        let whole = median(cells.iter().filter_map(|cell| whole.of(cell)).collect()).unwrap_or(0.0);
        let values: Vec<(Rank, f64)> = cells.iter().filter_map(|cell| Some((cell.rank, figure.of(cell)?))).collect();
        Spread::of_values(&values, MATTERS * whole)
    }

    /// Values of ranks, of which differences up to so much do not matter.
    fn of_values(values: &[(Rank, f64)], matters: f64) -> Spread {
        let numbers = || values.iter().map(|(_, value)| *value);
        let Some(median_value) = median(numbers().collect()) else {
            return Spread { range: None, median: 0.0, limit: f64::INFINITY, outliers: Vec::new() };
        };
        let distance = median(numbers().map(|value| (value - median_value).abs()).collect()).unwrap_or(0.0);
        let limit = median_value + (FAR * NORMAL * distance).max(matters);
        let mut outliers: Vec<(Rank, f64)> = values.iter().copied().filter(|(_, value)| *value > limit).collect();
        outliers.sort_by(|one, other| other.1.total_cmp(&one.1));
        let least = numbers().fold(f64::INFINITY, f64::min);
        let most = numbers().fold(0.0, f64::max).max(least + matters);
        Spread {
            range: Some((least, most)),
            median: median_value,
            limit,
            outliers: outliers.into_iter().map(|(rank, _)| rank).collect(),
        }
    }

    /// Whether a rank with such a value stands out.
    pub(super) fn stands_out(&self, value: f64) -> bool {
        value > self.limit
    }

    /// How far up a value is, from the least to the most.
    pub(super) fn share(&self, value: f64) -> f64 {
        self.range.map_or(0.0, |(least, most)| if most > least { (value - least) / (most - least) } else { 0.0 })
    }
}

/// The ranks that stand out, in words.
pub(super) fn draw(
    scene: &Scene<'_>,
    figure: RankFigure,
    spread: &Spread,
    cells: &[RankCell],
    area: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let titles = [format!("Outliers in {}", figure.name()), "Outliers".into()];
    let title = titles.into_iter().find(|title| title.len() <= area.width.into()).unwrap_or_default();
    say(buffer, row(area, 0), Line::styled(title, theme.title()));
    let body = below(area, 1);
    if spread.outliers.is_empty() {
        let words = match spread.range {
            None => figure.why_unknown(scene).to_owned(),
            Some(_) if cells.len() == 1 => "there is only one rank".into(),
            Some(_) => format!("none: all ranks are near {}", figure.written(spread.median)),
        };
        for (line, words) in text::wrapped(&words, area.width.max(1).into()).into_iter().enumerate() {
            say(buffer, row(body, line as u16), Line::styled(words, theme.quiet()));
        }
        return;
    }
    let room = usize::from(body.height).max(1);
    let shown = if spread.outliers.len() > room { room - 1 } else { room };
    for (line, rank) in spread.outliers.iter().take(shown).enumerate() {
        let value = cells.iter().find(|cell| cell.rank == *rank).and_then(|cell| figure.of(cell)).unwrap_or(0.0);
        let change = text::whole_percent(value / spread.median - 1.0);
        let more = match area.width {
            _ if spread.median <= 0.0 => ", most ranks have none".into(),
            0..NARROW => format!(", +{change}"),
            _ => format!(", {change} above the median"),
        };
        let spans = [
            Span::styled(format!("! rank {rank}"), theme.bad()),
            Span::raw(format!("  {}", figure.written(value))),
            Span::styled(more, theme.quiet()),
        ];
        say(buffer, row(body, line as u16), Line::from(spans.to_vec()));
    }
    let hidden = spread.outliers.len().saturating_sub(shown);
    if hidden > 0 {
        say(buffer, row(body, shown as u16), Line::styled(format!("and {hidden} more"), theme.warning()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64], matters: f64) -> Spread {
        let values: Vec<(Rank, f64)> = (0..).map(Rank).zip(values.iter().copied()).collect();
        Spread::of_values(&values, matters)
    }

    #[test]
    fn who_is_far_from_the_others_stands_out() {
        let one = spread(&[10.0, 10.1, 9.9, 10.0, 14.0, 10.1, 20.0], 0.2);
        assert_eq!(one.outliers, [Rank(6), Rank(4)], "the worst first");
        assert_eq!((one.range, one.median), (Some((9.9, 20.0)), 10.1));
        assert!(spread(&[1.0, 4.0, 2.0, 3.0, 5.0], 0.0).outliers.is_empty(), "spread evenly");
        assert!(spread(&[10.0, 10.0, 10.0, 10.1], 0.2).outliers.is_empty(), "it does not matter");
        assert_eq!(spread(&[0.0, 0.0, 0.0, 5.0], 1.0).outliers, [Rank(3)], "of nothing, anything");
        assert!(spread(&[], 1.0).range.is_none());
    }

    #[test]
    fn differences_that_do_not_matter_stay_small() {
        let alike = spread(&[100.0, 101.0], 10.0);
        assert_eq!(alike.share(101.0), 0.1);
        assert_eq!(alike.share(100.0), 0.0);
        assert_eq!(spread(&[0.0, 0.0], 0.0).share(0.0), 0.0);
    }
}
