//! The comparison for a terminal, in a hundred columns.

use anstyle::AnsiColor;
use stepscope_analyzer::Diff;
use stepscope_plan::text;

use super::{
    answer,
    tables::{Room, tables},
};
use crate::render::text::{BOLD, COLUMNS, labelled, titled};

const ROOM: Room = Room { causes: 14, kernels: 12 };

pub(super) fn written(diff: &Diff) -> String {
    let mut text = String::new();
    for line in text::wrapped(&text::printable(&answer::answer(diff)), COLUMNS) {
        text += &format!("{BOLD}{line}{BOLD:#}\n");
    }
    if !diff.comparable {
        let yellow = AnsiColor::Yellow.on_default().bold();
        text += &labelled("warning", answer::NOT_COMPARABLE, yellow);
    }
    for fact in answer::facts(diff) {
        text += &labelled(fact.about, &text::printable(&fact.says), BOLD);
    }
    tables(diff, ROOM).iter().for_each(|table| text += &titled(table));
    text
}
