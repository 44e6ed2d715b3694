//! What was there at the peak, as a flame graph: all of it on top, below it each category, and then the calls that led to it,
//! the outermost first. Whatever is below something led to a part of it, as wide as its bytes.

use plotters::style::RGBColor;
use stepscope_analyzer::{CallName, CallNode, CallTree, RankMemory};
use stepscope_plan::text;

use super::{
    calls::{amount, name, words},
    colour,
};
use crate::{
    analyze::report::moment,
    render::html::flame::{BoxPlace, Flame, FlameBox},
};

pub(super) fn graph(memory: &RankMemory, tree: &CallTree<'_>) -> String {
    let all = tree.bytes;
    let on_top = format!("all of it, {}", text::bytes(all));
    let mut flame = Flame::of(all, &on_top, &hover("all of it", all, tree.blocks, all));
    let mut from = 0;
    for category in &tree.categories {
        let (colour, spelled) = (colour(category.category), category.category.spelled());
        let hover = hover(&spelled, category.bytes, category.blocks, all);
        let shown = FlameBox { amount: category.bytes, colour, label: &spelled, hover: &hover };
        flame.add(BoxPlace { from, row: 1 }, &shown);
        add_calls(&mut flame, BoxPlace { from, row: 2 }, &category.calls, (colour, all));
        from += category.bytes;
    }
    let title = format!("Calls that led to the memory at {} of rank {}", moment(memory), memory.rank);
    let legend = tree.categories.iter().map(|part| (part.category.spelled(), colour(part.category)));
    let note = "as wide as their bytes, the outermost call on top; click to zoom, click on top to zoom out".into();
    flame.figure(title, note, legend.collect())
}

/// What is said of a box that is pointed at.
fn hover(name: &str, bytes: u64, blocks: u64, all: u64) -> String {
    let (size, share) = amount(bytes, all);
    format!("{name} \u{b7} {size} ({share}), {}", text::counted(blocks, "block"))
}

fn add_calls(flame: &mut Flame, place: BoxPlace, calls: &[CallNode<'_>], (colour, all): (RGBColor, u64)) {
    let mut from = place.from;
    for node in calls {
        let label = match node.name {
            CallName::Known(call) => words(call),
            other => name(other),
        };
        let hover = hover(&name(node.name), node.bytes, node.blocks, all);
        let shown = FlameBox { amount: node.bytes, colour, label: &label, hover: &hover };
        flame.add(BoxPlace { from, ..place }, &shown);
        add_calls(flame, BoxPlace { from, row: place.row + 1 }, &node.inner, (colour, all));
        from += node.bytes;
    }
}
