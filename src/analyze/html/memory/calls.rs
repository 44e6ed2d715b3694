//! What was there at the peak, as a tree of calls that opens where somebody clicks.

use stepscope_analyzer::{CallName, CallNode, CallTree, RankMemory};
use stepscope_plan::text;

use super::colour;
use crate::{
    analyze::report::moment,
    render::html::{chart, escaped},
};

const NEARLY_ALL: f64 = 0.9;

/// How a call is named where there is little room: the function first, then its file and line.
pub(super) fn words(call: &str) -> String {
    let (place, function) = call.rsplit_once(' ').unwrap_or((call, ""));
    let file = place.rsplit_once('/').map_or(place, |(_, file)| file);
    if function.is_empty() { file.to_owned() } else { format!("{function} {file}") }
}

/// How a node is named in full.
pub(super) fn name(name: CallName<'_>) -> String {
    match name {
        CallName::Known(call) => text::printable_name(call),
        CallName::Unknown => "(not recorded)".into(),
        CallName::Others(calls) => format!("others ({})", text::counted(calls, "call")),
    }
}

/// How much, and how much of all.
pub(super) fn amount(bytes: u64, all: u64) -> (String, String) {
    (text::bytes(bytes), text::percent(bytes as f64 / all.max(1) as f64))
}

/// The tree, folded but for its categories, and for calls that have nearly all of the one around them.
pub(super) fn tree(memory: &RankMemory, tree: &CallTree<'_>) -> String {
    let mut written = format!(
        "<details><summary>Calls that led to the {} at {} of rank {}</summary>\n<div class=\"calls\">\n",
        text::bytes(tree.bytes),
        moment(memory),
        memory.rank,
    );
    for category in &tree.categories {
        let colour = chart::hex(colour(category.category));
        let line = line(&category.category.spelled(), category.bytes, category.blocks, tree.bytes);
        written += &format!("<details open><summary><i style=\"background:{colour}\"></i>{line}</summary>\n");
        written += &nodes(&category.calls, category.bytes, tree.bytes);
        written += "</details>\n";
    }
    written + "</div>\n</details>\n"
}

fn nodes(calls: &[CallNode<'_>], of: u64, all: u64) -> String {
    let node = |node: &CallNode<'_>| {
        let line = line(&name(node.name), node.bytes, node.blocks, all);
        match &node.inner[..] {
            [] => format!("<p>{line}</p>\n"),
            inner => {
                let open = if node.bytes as f64 >= NEARLY_ALL * of as f64 { " open" } else { "" };
                format!("<details{open}><summary>{line}</summary>\n{}</details>\n", nodes(inner, node.bytes, all))
            }
        }
    };
    calls.iter().map(node).collect()
}

fn line(name: &str, bytes: u64, blocks: u64, all: u64) -> String {
    let (size, share) = amount(bytes, all);
    format!("<b>{size}</b> <span>{share}</span> {} <small>{}</small>", escaped(name), text::counted(blocks, "block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_function_first() {
        assert_eq!(words("torchtitan/models/llama3/model.py:579 forward"), "forward model.py:579");
        assert_eq!(words("my files/train.py:3 <module>"), "<module> train.py:3");
        assert_eq!(words("train.py"), "train.py");
    }
}
