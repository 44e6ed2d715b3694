//! The comparison for a terminal.

use anstyle::AnsiColor;
use stepscope_analyzer::Diff;
use stepscope_plan::text;

use super::{
    answer,
    tables::{Room, tables},
};
use crate::render::text::{BOLD, labelled, titled};

const ROOM: Room = Room { causes: 14, kernels: 12 };

/// The comparison in so many columns.
pub(super) fn written(diff: &Diff, columns: usize) -> String {
    let mut text = String::new();
    for line in text::wrapped(&text::printable(&answer::answer(diff)), columns) {
        text += &format!("{BOLD}{line}{BOLD:#}\n");
    }
    if !diff.comparable {
        let yellow = AnsiColor::Yellow.on_default().bold();
        text += &labelled("warning", answer::NOT_COMPARABLE, yellow, columns);
    }
    for fact in answer::facts(diff) {
        text += &labelled(fact.about, &text::printable(&fact.says), BOLD, columns);
    }
    tables(diff, ROOM).iter().for_each(|table| text += &titled(table, columns));
    text
}
