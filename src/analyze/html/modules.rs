//! Where the time of kernels goes by module, as a flame graph.

use plotters::style::RGBColor;
use stepscope_analyzer::{Analysis, ModuleFigures};
use stepscope_plan::text;

use crate::render::html::{
    chart::{BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, TEAL, YELLOW},
    flame::{BoxPlace, Flame, FlameBox},
};

/// Of neighbors in one row.
const COLOURS: [RGBColor; 7] = [BLUE, ORANGE, GREEN, PURPLE, TEAL, PINK, YELLOW];

pub(super) fn graph(analysis: &Analysis) -> String {
    let modules = &analysis.modules;
    let all = modules.iter().filter(|module| module.depth == 0).map(time).sum();
    if all == 0 {
        return String::new();
    }
    let hover =
        |name: &str, time: u64, share: f64| format!("{name} \u{b7} {}, {}", milliseconds(time), text::percent(share));
    let mut flame = Flame::of(all, &format!("all kernels, {}", milliseconds(all)), &hover("all kernels", all, 1.0));
    // Each module comes before those in it: how far each row is filled, and how many boxes it has.
    let mut rows: Vec<(u64, usize)> = Vec::new();
    for module in modules {
        rows.resize(rows.len().max(module.depth + 2), (0, 0));
        let (from, count) = rows[module.depth];
        rows[module.depth] = (from + time(module), count + 1);
        rows[module.depth + 1].0 = from;
        let path = module.module.as_deref().unwrap_or("no module");
        let label = path.rsplit('/').next().unwrap_or(path);
        let colour = if module.module.is_some() { COLOURS[count % COLOURS.len()] } else { GREY };
        let hover = hover(path, time(module), module.kernels.share);
        let place = BoxPlace { from, row: module.depth as u32 + 1 };
        flame.add(place, &FlameBox { amount: time(module), colour, label, hover: &hover });
    }
    let note = "the sum of kernel durations over all ranks, the outermost module on top; click to zoom, click on top to zoom out";
    flame.figure("Kernel time by module".into(), note.into(), Vec::new())
}

fn time(module: &ModuleFigures) -> u64 {
    u64::try_from(module.kernels.total_ns).unwrap_or(0)
}

fn milliseconds(time: u64) -> String {
    text::duration(i64::try_from(time).unwrap_or(i64::MAX))
}
