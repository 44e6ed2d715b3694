//! What was there at the peak, as a flame graph: all of it on top, below it each category, and then the calls that led to it,
//! the outermost first. Whatever is below something led to a part of it, as wide as its bytes.
//!
//! Boxes are pictures inside of the picture, so that a name ends where its box does. The script only moves them.

use stepscope_analyzer::{CallName, CallNode, CallTree, RankMemory};
use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::{
    COLOURS,
    calls::{amount, name, words},
};
use crate::{
    analyze::report::moment,
    render::html::{
        chart::{self, Figure, WIDE},
        escaped,
    },
};

const ROW: u32 = 22;

pub(super) fn graph(memory: &RankMemory, tree: &CallTree<'_>) -> String {
    let mut boxes = Boxes { all: tree.bytes, written: String::new(), rows: 0 };
    let all = format!("all of it, {}", text::bytes(tree.bytes));
    boxes.add(
        Place { from: 0, row: 0 },
        tree.bytes,
        "#030303",
        &all,
        &hover("all of it", tree.bytes, tree.blocks, tree.bytes),
    );
    let mut from = 0;
    for category in &tree.categories {
        let (colour, spelled) = (chart::hex(COLOURS[category.category as usize]), category.category.spelled());
        let hover = hover(&spelled, category.bytes, category.blocks, tree.bytes);
        boxes.add(Place { from, row: 1 }, category.bytes, &colour, &spelled, &hover);
        boxes.add_calls(Place { from, row: 2 }, &category.calls, &colour);
        from += category.bytes;
    }
    let title = format!("Calls that led to the memory at {} of rank {}", moment(memory), memory.rank);
    let svg = format!(
        "<svg class=\"large flame\" viewBox=\"0 0 {WIDE} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
        boxes.rows * ROW,
        escaped(&title),
        boxes.written,
    );
    let legend: Vec<_> = tree.categories.iter().map(|part| legend(part.category)).collect();
    let note = "as wide as their bytes, the outermost call on top; click to zoom, click on top to zoom out".into();
    let figure = Figure { title, note, legend, svg };
    format!("<figure data-flame>\n{}<div class=\"touched\"></div>\n</figure>\n", figure.contents())
}

fn legend(category: MemoryCategory) -> (String, plotters::prelude::RGBColor) {
    (category.spelled(), COLOURS[category as usize])
}

/// What is said of a box that is pointed at.
fn hover(name: &str, bytes: u64, blocks: u64, all: u64) -> String {
    let (size, share) = amount(bytes, all);
    format!("{name} \u{b7} {size} ({share}), {}", text::counted(blocks, "block"))
}

/// Where a box begins: how many bytes are left of it, and in which row it is.
#[derive(Clone, Copy)]
struct Place {
    from: u64,
    row: u32,
}

/// The boxes that are written so far.
struct Boxes {
    /// What the whole width stands for.
    all: u64,
    written: String,
    rows: u32,
}

impl Boxes {
    fn add(&mut self, Place { from, row }: Place, bytes: u64, colour: &str, label: &str, hover: &str) {
        let wide = |bytes: u64| bytes as f64 / self.all.max(1) as f64 * f64::from(WIDE);
        self.rows = self.rows.max(row + 1);
        self.written += &format!(
            "<svg x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{ROW}\"><title>{}</title>\
             <rect width=\"100%\" height=\"100%\" fill=\"{colour}\"/><text x=\"5\" y=\"15\">{}</text></svg>\n",
            wide(from),
            row * ROW,
            wide(bytes),
            escaped(hover),
            escaped(label),
        );
    }

    fn add_calls(&mut self, place: Place, calls: &[CallNode<'_>], colour: &str) {
        let mut from = place.from;
        for node in calls {
            let label = match node.name {
                CallName::Known(call) => words(call),
                other => name(other),
            };
            let hover = hover(&name(node.name), node.bytes, node.blocks, self.all);
            self.add(Place { from, ..place }, node.bytes, colour, &label, &hover);
            self.add_calls(Place { from, row: place.row + 1 }, &node.inner, colour);
            from += node.bytes;
        }
    }
}
