//! What fills memory: over time, at its peak, on every rank.

mod area;
mod callers;
mod categories;
mod ranks;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::Line,
};

use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding},
    scene::Scene,
    widgets::{below, right_of, row, say},
};

/// The key that groups what is there at the peak in another way.
const GROUP: char = 'b';

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding { keys: &[KeyCode::Up, KeyCode::Char('k')], action: Action::Up, short: "scroll", long: "scroll ranks up" },
    Binding {
        keys: &[KeyCode::Down, KeyCode::Char('j')],
        action: Action::Down,
        short: "scroll",
        long: "scroll ranks down",
    },
    Binding {
        keys: &[KeyCode::Char('s')],
        action: Action::Sort,
        short: "sort",
        long: "sort ranks by number or by peak",
    },
    // The table has its word, where there is more than one way.
    Binding {
        keys: &[KeyCode::Char(GROUP)],
        action: Action::Group,
        short: "",
        long: "group by category or by who asked for it, where that is known",
    },
];

/// From this width on, ranks stand beside all the rest.
const WIDE: u16 = 150;
const RANKS: u16 = 52;

/// What fills memory.
#[derive(Default)]
pub(crate) struct Memory {
    ranks: ranks::RankBars,
    by_caller: bool,
}

impl ViewBody for Memory {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let Some(memory) = scene.memory() else {
            let words = match scene.focus {
                Some(rank) => format!(" no memory recorded on rank {rank}"),
                None => " no memory recorded".into(),
            };
            say(buffer, row(area, 0), Line::styled(words, scene.theme.quiet()));
            return;
        };
        let (main, beside) = if area.width >= WIDE {
            (Rect { width: area.width - RANKS - 2, ..area }, Some(right_of(area, area.width - RANKS)))
        } else {
            (area, None)
        };
        if self.by_caller && callers::are_known(memory) {
            let upper = main.height / 2;
            area::draw(scene, memory, Rect { height: upper, ..main }, buffer);
            callers::draw(scene, memory, below(main, upper), buffer);
            beside.into_iter().for_each(|beside| self.ranks.draw(scene, beside, buffer));
            return;
        }
        let is_narrow = main.width < categories::WIDTH + categories::DETAILS;
        let table = categories::height(memory, is_narrow);
        // Over time has what the table leaves, and a third at least.
        let upper = main.height.saturating_sub(table + 1).max(main.height / 3);
        area::draw(scene, memory, Rect { height: upper, ..main }, buffer);
        let lower = below(main, upper);
        categories::draw(scene, memory, Rect { width: lower.width.min(categories::WIDTH), ..lower }, buffer);
        let right = right_of(lower, categories::WIDTH + 2);
        if is_narrow {
            categories::draw_ledger_line(scene, memory, below(lower, table - 1), buffer);
            self.ranks.draw(scene, Rect { height: right.height.min(table - 1), ..right }, buffer);
            return;
        }
        match beside {
            Some(beside) => {
                categories::draw_details(scene, memory, right, buffer);
                self.ranks.draw(scene, beside, buffer);
            }
            None => {
                // RankBars have a line each, as long as half of the room is left to the rest.
                let ranks = (scene.snapshot.memory.len() as u16).saturating_add(2).min(right.height / 2);
                let details = right.height - ranks;
                categories::draw_details(scene, memory, Rect { height: details, ..right }, buffer);
                self.ranks.draw(scene, below(right, details), buffer);
            }
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        match action {
            Action::Up => self.ranks.scroll_up(),
            Action::Down => self.ranks.scroll_down(),
            Action::Sort => self.ranks.sort(),
            Action::Group => self.by_caller = !self.by_caller,
            _ => {}
        }
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        self.ranks.rank_at(event.column, event.row).map(StepOrRank::Rank)
    }
}
