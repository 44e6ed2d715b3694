//! Dots on two logarithmic axes, each of which says something when it is pointed at.

use std::{collections::HashMap, ops::Range};

use anyhow::Result;
use plotters::prelude::*;

use super::{
    chart::{self, Figure, LEFT, LETTERS, WIDTH},
    escaped,
};

const HEIGHT: u32 = 320;
/// How wide a ring around a dot is, with some room between.
const RING: f64 = 4.0;

/// A plot of dots.
pub(crate) struct Scatter<'a> {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) legend: Vec<(String, RGBColor)>,
    pub(crate) dots: Vec<Dot>,
    /// Where a bound that rises with the horizontal axis becomes level.
    pub(crate) ridge: Option<(f64, f64)>,
    /// How values along the axes are written.
    pub(crate) labels: [&'a dyn Fn(&f64) -> String; 2],
}

/// A dot.
pub(crate) struct Dot {
    /// Where it is; both are above zero.
    pub(crate) at: (f64, f64),
    /// How much of all it stands for.
    pub(crate) share: f64,
    pub(crate) colour: RGBColor,
    pub(crate) says: String,
}

impl Scatter<'_> {
    pub(crate) fn written(self) -> Result<String> {
        let x = around(self.dots.iter().map(|dot| dot.at.0).chain(self.ridge.map(|ridge| ridge.0)));
        let y = around(self.dots.iter().map(|dot| dot.at.1).chain(self.ridge.map(|ridge| ridge.1)));
        let mut circles = String::new();
        let svg = chart::svg((WIDTH, HEIGHT), &self.title, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin_top(10)
                .margin_right(24)
                .set_label_area_size(LabelAreaPosition::Left, LEFT + 30)
                .set_label_area_size(LabelAreaPosition::Bottom, 2 * LETTERS)
                .build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(chart::GRID)
                .axis_style(chart::TEXT)
                .label_style(chart::letters(LETTERS))
                .x_label_formatter(self.labels[0])
                .y_label_formatter(self.labels[1])
                .draw()?;
            if let Some(ridge) = self.ridge {
                let start = x.start.max(y.start * ridge.0 / ridge.1);
                let line = vec![(start, start * ridge.1 / ridge.0), ridge, (x.end, ridge.1)];
                chart.draw_series([PathElement::new(line, chart::TEXT.stroke_width(2))])?;
            }
            let mut taken: HashMap<(i32, i32), f64> = HashMap::new();
            for dot in &self.dots {
                let (x, y) = chart.backend_coord(&dot.at);
                let size = 3.0 + 14.0 * dot.share.max(0.0).sqrt();
                let colour = chart::hex(dot.colour);
                let (size, look) = match taken.get(&(x, y)) {
                    None => (size, format!("fill=\"{colour}\" fill-opacity=\"0.75\"")),
                    // Where another one is, it is a ring around that.
                    Some(inner) => {
                        (inner + RING, format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\"", RING - 1.0))
                    }
                };
                taken.insert((x, y), size);
                circles += &format!(
                    "<circle cx=\"{x}\" cy=\"{y}\" r=\"{size:.1}\" {look}><title>{}</title></circle>\n",
                    escaped(&dot.says),
                );
            }
            Ok(())
        })?;
        let svg = svg.replacen("</svg>", &format!("{circles}</svg>"), 1);
        Ok(Figure { title: self.title, note: self.note, legend: self.legend, svg }.written())
    }
}

/// Powers of ten that some values lie between.
fn around(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN_POSITIVE, f64::max));
    10_f64.powf(low.log10().floor())..10_f64.powf((high * 1.01).log10().ceil())
}
