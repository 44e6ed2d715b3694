//! How fast collectives are, by the size of their messages.

use anyhow::Result;
use plotters::style::RGBColor;
use stepscope_analyzer::{Analysis, CollectiveFigures, MessageSize};
use stepscope_plan::text;

use crate::render::html::{
    chart::{BLUE, BROWN, GREEN, GREY, ORANGE, PINK, PURPLE, RED, TEAL, YELLOW},
    scatter::{Dot, Scatter},
};

/// One for each row of the table of collectives; beyond these, grey.
const COLOURS: [RGBColor; 9] = [BLUE, ORANGE, GREEN, PURPLE, RED, TEAL, PINK, YELLOW, BROWN];

pub(super) fn plot(analysis: &Analysis) -> Result<String> {
    let colours = COLOURS.into_iter().chain(std::iter::repeat(GREY));
    let (mut dots, mut legend) = (Vec::new(), Vec::new());
    let all: i64 = analysis.collectives.iter().flat_map(|figures| &figures.by_size).map(|size| size.own_ns).sum();
    for (figures, colour) in analysis.collectives.iter().zip(colours) {
        let name = name(figures);
        let before = dots.len();
        dots.extend(figures.by_size.iter().filter_map(|size| dot(size, &name, colour, all)));
        if dots.len() > before {
            legend.push((name, colour));
        }
    }
    if dots.is_empty() {
        return Ok(String::new());
    }
    let labels: [&dyn Fn(&f64) -> String; 2] =
        [&|bytes: &f64| text::bytes(*bytes as u64), &|rate: &f64| text::bandwidth(*rate)];
    let note =
        "bus bandwidth against the size of a message, both logarithmic; larger is more time of their own; point at one";
    let title = "Collectives by message size".into();
    Scatter { title, note: note.into(), legend, dots, ridge: None, labels }.written()
}

fn name(figures: &CollectiveFigures) -> String {
    let axis = figures.axis.map(|axis| format!(", {}", axis.name()));
    let size = figures.group_size.map(|size| format!(", {}", text::counted(size, "rank")));
    format!("{}{}{}", figures.operation.word().replace('_', "-"), axis.unwrap_or_default(), size.unwrap_or_default())
}

fn dot(size: &MessageSize, name: &str, colour: RGBColor, all: i64) -> Option<Dot> {
    let bandwidth = size.bus_bandwidth.or(size.algorithm_bandwidth)?;
    let bytes = size.bytes / size.count.max(1);
    let says = format!(
        "{name}: {} of about {}, {}",
        text::counted(size.count, "message"),
        text::bytes(bytes),
        text::bandwidth(bandwidth),
    );
    let share = size.own_ns as f64 / all.max(1) as f64;
    (bytes > 0 && bandwidth > 0.0).then_some(Dot { at: (bytes as f64, bandwidth), share, colour, says })
}
