//! The comparison for a pull request.

use stepscope_analyzer::Diff;

use super::{
    answer,
    tables::{Room, tables},
};
use crate::render::markdown::{escaped, titled};

const ROOM: Room = Room { causes: 6, kernels: 30 };

pub(super) fn written(diff: &Diff) -> String {
    let mut text = format!("## {}\n\n", escaped(&answer::answer(diff)));
    if !diff.comparable {
        text += &format!("> [!WARNING]\n> {}\n\n", answer::NOT_COMPARABLE);
    }
    text += "| | |\n|---|---|\n";
    for fact in answer::facts(diff) {
        text += &format!("| **{}** | {} |\n", fact.about, escaped(&fact.says));
    }
    tables(diff, ROOM).iter().for_each(|table| text += &titled(table));
    text
}
