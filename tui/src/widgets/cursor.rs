//! One of many lines that is chosen, and how far they are scrolled so that it is seen.

use std::ops::Range;

use crate::keys::Action;

/// A chosen line.
#[derive(Default)]
pub(crate) struct Cursor {
    chosen: usize,
    first: usize,
    /// Lines that there are, and that are seen, as they were drawn last.
    lines: usize,
    room: usize,
}

impl Cursor {
    /// The chosen line, if there is any.
    pub(crate) fn chosen(&self) -> Option<usize> {
        (self.chosen < self.lines).then_some(self.chosen)
    }

    /// Chooses a line.
    pub(crate) fn choose(&mut self, line: usize) {
        self.chosen = line.min(self.lines.saturating_sub(1));
    }

    /// Does what a key asks for, if it asks to move.
    pub(crate) fn act(&mut self, action: Action) {
        let page = self.room.max(1) as isize;
        let places = match action {
            Action::Up => -1,
            Action::Down => 1,
            Action::PageUp => -page,
            Action::PageDown => page,
            Action::Top => isize::MIN,
            Action::Bottom => isize::MAX,
            _ => 0,
        };
        self.choose(self.chosen.saturating_add_signed(places));
    }

    /// Which of so many lines are seen where there is room for so many: the chosen one is among them.
    pub(crate) fn seen(&mut self, lines: usize, room: usize) -> Range<usize> {
        (self.lines, self.room) = (lines, room);
        self.choose(self.chosen);
        let least = (self.chosen + 1).saturating_sub(room);
        let most = self.chosen.min(lines.saturating_sub(room));
        self.first = self.first.clamp(least.min(most), most);
        self.first..lines.min(self.first + room)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_chosen_line_is_seen(
            moves in prop::collection::vec((0..6_usize, 0..40_usize, 0..12_usize), 1..40),
        ) {
            let mut cursor = Cursor::default();
            let actions = [Action::Up, Action::Down, Action::PageUp, Action::PageDown, Action::Top, Action::Bottom];
            for (action, lines, room) in moves {
                cursor.act(actions[action]);
                let seen = cursor.seen(lines, room);
                prop_assert_eq!(seen.len(), lines.min(room), "as many as there is room for");
                prop_assert!(seen.end <= lines);
                prop_assert_eq!(cursor.chosen().is_some(), lines > 0);
                if let Some(chosen) = cursor.chosen().filter(|_| room > 0) {
                    prop_assert!(seen.contains(&chosen));
                }
            }
        }
    }
}
