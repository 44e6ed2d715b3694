//! Lines that did not fit where they were written, for tests to find.

use std::{cell::RefCell, mem};

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

thread_local! {
    static CUT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes a line that is wider than its place. One without a place is left out as a whole.
pub(super) fn note(line: &Line<'_>, place: Rect) {
    let words = line.to_string();
    if place.height > 0 && words.trim_end().chars().count() > place.width.into() {
        CUT.with_borrow_mut(|cut| cut.push(words));
    }
}

/// Notes a line that stands where another one does.
pub(super) fn note_overlap(line: &Line<'_>, place: Rect, buffer: &Buffer) {
    let is_taken = place.positions().any(|at| buffer.cell(at).is_some_and(|cell| cell.symbol() != " "));
    if is_taken && line.width() > 0 {
        CUT.with_borrow_mut(|cut| cut.push(format!("over something else: {line}")));
    }
}

/// What was cut since this was called last.
pub(crate) fn take() -> Vec<String> {
    CUT.with_borrow_mut(mem::take)
}
