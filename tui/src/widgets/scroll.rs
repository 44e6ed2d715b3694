//! Lines of which only some are seen, and how far they are scrolled.

use std::ops::Range;

/// How far lines are scrolled.
#[derive(Default)]
pub(crate) struct Scroll {
    first: usize,
    /// Lines that there are, and that are seen, as they were drawn last.
    lines: usize,
    room: usize,
}

impl Scroll {
    /// So many lines further, or back.
    pub(crate) fn by(&mut self, lines: isize) {
        self.first = self.first.saturating_add_signed(lines).min(self.last_first());
    }

    /// So many screens further, or back.
    pub(crate) fn by_pages(&mut self, pages: isize) {
        self.by(pages * self.room.max(1) as isize);
    }

    /// Which of so many lines are seen where there is room for so many.
    pub(crate) fn seen(&mut self, lines: usize, room: usize) -> Range<usize> {
        (self.lines, self.room) = (lines, room);
        self.by(0);
        self.first..lines.min(self.first + room)
    }

    fn last_first(&self) -> usize {
        self.lines.saturating_sub(self.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_scrolls_beyond_the_end() {
        let mut scroll = Scroll::default();
        assert_eq!(scroll.seen(10, 4), 0..4);
        scroll.by_pages(1);
        assert_eq!(scroll.seen(10, 4), 4..8);
        scroll.by_pages(1);
        assert_eq!(scroll.seen(10, 4), 6..10, "the last lines fill the room");
        assert_eq!(scroll.seen(3, 4), 0..3, "there are fewer");
        scroll.by(-1);
        assert_eq!(scroll.seen(10, 0), 0..0);
    }
}
