//! The peak of every rank, as a bar of what filled it.

use std::{cmp::Reverse, sync::Arc};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::RankMemory;
use stepscope_plan::text;
use stepscope_traces::Rank;

use crate::{
    scene::Scene,
    widgets::{below, memory_parts, parts_line, row, say, say_right},
};

/// From this width on the title is a whole sentence.
const WIDE: u16 = 32;

/// The list of ranks: its order, and how far it is scrolled.
#[derive(Default)]
pub(super) struct RankBars {
    by_peak: bool,
    first: usize,
    last_first: usize,
    /// Where each is, for the mouse.
    drawn: Vec<(Rect, Rank)>,
}

impl RankBars {
    pub(super) fn scroll_up(&mut self) {
        self.first = self.first.saturating_sub(1);
    }

    pub(super) fn scroll_down(&mut self) {
        self.first = (self.first + 1).min(self.last_first);
    }

    pub(super) fn sort(&mut self) {
        (self.by_peak, self.first) = (!self.by_peak, 0);
    }

    pub(super) fn rank_at(&self, x: u16, y: u16) -> Option<Rank> {
        self.drawn.iter().find(|(place, _)| place.contains((x, y).into())).map(|(_, rank)| *rank)
    }

    pub(super) fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        self.drawn.clear();
        let mut ranks: Vec<&Arc<RankMemory>> = scene.snapshot.memory.iter().collect();
        if self.by_peak {
            ranks.sort_by_key(|memory| (Reverse(memory.peak_bytes), memory.rank));
        }
        let room = usize::from(area.height.saturating_sub(1));
        self.last_first = ranks.len().saturating_sub(room);
        self.first = self.first.min(self.last_first);
        let title = match (self.by_peak, area.width < WIDE) {
            (false, false) => "Peak of each rank, by number",
            (true, false) => "Peak of each rank, fullest first",
            (false, true) => "Peaks",
            (true, true) => "Peaks, fullest",
        };
        say(buffer, row(area, 0), Line::styled(title, theme.title()));
        let hidden = ranks.len().saturating_sub(self.first + room);
        if hidden > 0 {
            say_right(buffer, row(area, 0), Line::styled(format!("↓ {hidden} more "), theme.warning()));
        }
        let full = ranks.iter().map(|memory| memory.peak_bytes).max().unwrap_or(0);
        let digits = ranks.iter().map(|memory| memory.rank.to_string().len()).max().unwrap_or(1);
        for (index, memory) in ranks.into_iter().skip(self.first).take(room).enumerate() {
            let place = row(below(area, 1), index as u16);
            let style = if scene.focus == Some(memory.rank) { theme.chosen() } else { theme.quiet() };
            let size = text::bytes(memory.peak_bytes);
            let mut line =
                vec![Span::styled(format!("{:>digits$}", memory.rank), style), Span::raw(format!(" {size:>8} "))];
            let width = usize::from(place.width).saturating_sub(digits + 11);
            let parts = memory_parts(theme, |category| memory.at_peak.get(&category).copied().unwrap_or(0));
            line.extend(parts_line(theme, &parts, full as f64, width as u16));
            say(buffer, place, Line::from(line));
            self.drawn.push((place, memory.rank));
        }
    }
}
