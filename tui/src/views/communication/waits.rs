//! Who waits for whom: a line for each rank that waits, a column for each that is waited for.

use std::collections::BTreeMap;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, Straggler, Wait};
use stepscope_plan::text;
use stepscope_traces::{Rank, RunSource};

use crate::{
    scene::Scene,
    unknown_waits,
    widgets::{below, right_of, row, say},
};

/// Where ranks were drawn, for the mouse.
#[derive(Default)]
pub(super) struct Waits {
    drawn: Vec<(Rect, Rank)>,
}

impl Waits {
    pub(super) fn rank_at(&self, x: u16, y: u16) -> Option<Rank> {
        self.drawn.iter().find(|(place, _)| place.contains((x, y).into())).map(|(_, rank)| *rank)
    }

    pub(super) fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        self.drawn.clear();
        let theme = scene.theme;
        let Some(analysis) = &scene.snapshot.analysis else { return };
        // Kineto numbers no collectives: which ones belong together is told from their order.
        let inferred = if analysis.run.source == RunSource::Kineto { " (inferred)" } else { "" };
        let title = |words: &str| Line::styled(format!(" {words}{inferred} in collectives"), theme.title());
        if let Some(words) = nobody(analysis) {
            say(buffer, row(area, 0), title("Who waits for whom"));
            for (line, words) in text::wrapped(words, area.width.saturating_sub(2).into()).into_iter().enumerate() {
                say(buffer, row(below(area, 1), line as u16), Line::styled(format!(" {words}"), theme.quiet()));
            }
            return;
        }
        say(buffer, row(area, 0), title("Who waits (row) for whom (column)"));
        let mut lines = 1;
        for words in words(analysis, usize::from(area.width)) {
            let style = if lines == 1 { theme.strong() } else { theme.quiet() };
            say(buffer, row(area, lines), Line::styled(format!(" {words}"), style));
            lines += 1;
        }
        self.draw_map(scene, analysis, below(area, lines), buffer);
    }

    fn draw_map(&mut self, scene: &Scene<'_>, analysis: &Analysis, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let digits =
            analysis.waits.iter().map(|wait| wait.rank.max(wait.for_rank).to_string().len()).max().unwrap_or(1);
        let (cell, label) = (digits.max(2) + 1, digits + 2);
        let map = Map::of(
            &analysis.waits,
            |amount| usize::from(area.height) > amount + 1,
            |amount| label + cell * amount + TOTAL <= usize::from(area.width),
        );
        let most = map.pairs.values().copied().max().unwrap_or(1).max(1);
        let mut header = vec![Span::raw(" ".repeat(label))];
        for last in &map.waited_for {
            let style = if scene.focus == Some(*last) { theme.chosen() } else { theme.quiet() };
            header.push(Span::styled(format!("{:>cell$}", last.to_string()), style));
        }
        header.push(Span::styled(format!("{:>TOTAL$}", "waited"), theme.quiet()));
        say(buffer, row(area, 0), Line::from(header));
        for (line, rank) in map.waiting.iter().enumerate() {
            let place = row(below(area, 1), line as u16);
            let style = if scene.focus == Some(*rank) { theme.chosen() } else { theme.quiet() };
            let mut spans = vec![Span::styled(format!("{:>label$}", rank.to_string()), style)];
            for last in &map.waited_for {
                let cells = match map.pairs.get(&(*rank, *last)) {
                    _ if rank == last => vec![Span::raw(" ".repeat(cell))],
                    None => vec![Span::styled(format!("{:>cell$}", "·"), theme.quiet())],
                    Some(wait) => {
                        let mark = theme.level(*wait as f64 / most as f64);
                        let (gap, digit) = (" ".to_owned(), format!("{:>width$}", mark.letter, width = cell - 1));
                        vec![Span::raw(gap), Span::styled(digit, theme.leveled(mark))]
                    }
                };
                spans.extend(cells);
            }
            let waited = analysis.stragglers.iter().find(|straggler| straggler.rank == *rank);
            let waited = waited.map_or_else(String::new, |straggler| text::duration(straggler.wait_ns));
            spans.push(Span::styled(format!("{waited:>TOTAL$}"), theme.quiet()));
            say(buffer, place, Line::from(spans));
            self.drawn.push((place, *rank));
        }
        self.drawn.extend(map.waited_for.iter().enumerate().map(|(index, rank)| {
            let from = u16::try_from(label + index * cell).unwrap_or(u16::MAX);
            (Rect { width: cell as u16, ..right_of(row(area, 0), from) }.intersection(area), *rank)
        }));
        let left_out = analysis.stragglers.len().saturating_sub(map.waiting.len());
        let scale = format!(" 0 to 9: up to {}", text::duration(most));
        let more =
            if left_out > 0 { format!("; the worst of {} ranks", analysis.stragglers.len()) } else { String::new() };
        let line = row(below(area, 1), map.waiting.len() as u16);
        say(buffer, line, Line::styled(format!("{scale}{more}"), theme.quiet()));
    }
}

/// How wide what a rank waited for all others is.
const TOTAL: usize = 10;

/// Why there is nothing to show, if there is nothing.
fn nobody(analysis: &Analysis) -> Option<&'static str> {
    let nobody = || analysis.waits.is_empty().then_some("no waiting: all ranks arrive at the same time");
    unknown_waits::why_unknown(analysis).or_else(nobody)
}

/// What stands out, in words: the rank that others wait for most, the one that waits most, and what no rank is blamed for.
fn words(analysis: &Analysis, width: usize) -> Vec<String> {
    let worst = |of: fn(&Straggler) -> i64| analysis.stragglers.iter().rev().max_by_key(|straggler| of(straggler));
    let all: i64 = analysis.stragglers.iter().map(|straggler| straggler.wait_ns).sum();
    let waiting: i64 = analysis.collectives.iter().filter_map(|figures| figures.waiting_ns).sum();
    let between_stages = Some(waiting - all).filter(|other| *other > 0);
    let which = if between_stages.is_some() { "this" } else { "all" };
    let mut words = Vec::new();
    if let Some(last) = worst(|straggler| straggler.caused_wait_ns) {
        let share = text::percent(last.caused_wait_ns as f64 / all.max(1) as f64);
        words.push(format!(
            "rank {} is the worst straggler: {}, {share} of {which} waiting",
            last.rank,
            text::duration(last.caused_wait_ns)
        ));
    }
    if let Some(first) = worst(|straggler| straggler.wait_ns) {
        words.push(format!("rank {} waits most: {}", first.rank, text::duration(first.wait_ns)));
    }
    words.extend(
        between_stages
            .map(|other| format!("not counted: {} between stages, which is pipeline bubble", text::duration(other))),
    );
    words.iter().map(|words| text::shortened(words, width.saturating_sub(2).max(1))).collect()
}

/// The ranks that a map shows, and how long they waited for each other.
struct Map {
    waiting: Vec<Rank>,
    waited_for: Vec<Rank>,
    pairs: BTreeMap<(Rank, Rank), i64>,
}

impl Map {
    /// The worst ranks, as many as fit into lines and columns, in the order of their numbers.
    fn of(waits: &[Wait], fits_lines: impl Fn(usize) -> bool, fits_columns: impl Fn(usize) -> bool) -> Map {
        let worst = |of: fn(&Wait) -> Rank, fits: &dyn Fn(usize) -> bool| {
            let mut sums: BTreeMap<Rank, i64> = BTreeMap::new();
            for wait in waits {
                *sums.entry(of(wait)).or_default() += wait.wait_ns;
            }
            let mut ranks: Vec<(i64, Rank)> = sums.into_iter().map(|(rank, wait)| (-wait, rank)).collect();
            ranks.sort_unstable();
            let amount = (1..=ranks.len()).take_while(|amount| fits(*amount)).count();
            let mut ranks: Vec<Rank> = ranks.into_iter().take(amount).map(|(_, rank)| rank).collect();
            ranks.sort_unstable();
            ranks
        };
        Map {
            waiting: worst(|wait| wait.rank, &fits_lines),
            waited_for: worst(|wait| wait.for_rank, &fits_columns),
            pairs: waits.iter().map(|wait| ((wait.rank, wait.for_rank), wait.wait_ns)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_the_worst_ranks_in_order() {
        let wait = |rank, for_rank, wait_ns| Wait { rank: Rank(rank), for_rank: Rank(for_rank), wait_ns };
        let waits = [wait(0, 3, 10), wait(1, 2, 40), wait(1, 3, 40), wait(2, 3, 60), wait(3, 1, 5)];
        let all = Map::of(&waits, |_| true, |_| true);
        assert_eq!((all.waiting.len(), all.waited_for), (4, vec![Rank(1), Rank(2), Rank(3)]));
        let few = Map::of(&waits, |lines| lines <= 2, |columns| columns <= 1);
        assert_eq!((few.waiting, few.waited_for), (vec![Rank(1), Rank(2)], vec![Rank(3)]));
        assert_eq!(few.pairs[&(Rank(2), Rank(3))], 60);
        assert!(Map::of(&waits, |_| false, |_| true).waiting.is_empty());
    }
}
