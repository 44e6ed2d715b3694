//! Kernels under the roof of their device: what they compute for each byte, and how fast.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::{Analysis, KernelFigures};
use stepscope_plan::text;
use stepscope_traces::without_signature;

use crate::render::html::{
    chart::{self, Figure, LEFT, LETTERS, WIDTH},
    escaped,
    timeline::colour,
};

const HEIGHT: u32 = 320;

pub(super) fn plot(analysis: &Analysis) -> Result<String> {
    let place = |kernel: &KernelFigures| kernel.rates.arithmetic_intensity.zip(kernel.rates.flops_per_second);
    let is_known = |(intensity, rate): &(f64, f64)| *intensity > 0.0 && *rate > 0.0;
    let kernels: Vec<(&KernelFigures, (f64, f64))> =
        analysis.kernels.iter().filter_map(|kernel| Some((kernel, place(kernel).filter(is_known)?))).collect();
    let Some(roof) = analysis.roofline.as_ref().filter(|_| !kernels.is_empty()) else { return Ok(String::new()) };
    let ridge = roof.memory_bandwidth.map(|bandwidth| roof.peak_flops / bandwidth);
    let x = around(kernels.iter().map(|(_, (intensity, _))| *intensity).chain(ridge));
    let y = around(kernels.iter().map(|(_, (_, rate))| *rate).chain([roof.peak_flops]));
    let title = "Roofline".to_owned();
    let mut dots = String::new();
    let svg = chart::svg((WIDTH, HEIGHT), &title, |area| {
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
            .x_label_formatter(&|intensity: &f64| format!("{intensity}"))
            .y_label_formatter(&|rate: &f64| text::flops(*rate))
            .draw()?;
        if let (Some(bandwidth), Some(ridge)) = (roof.memory_bandwidth, ridge) {
            let start = x.start.max(y.start / bandwidth);
            let line = vec![(start, start * bandwidth), (ridge, roof.peak_flops), (x.end, roof.peak_flops)];
            chart.draw_series([PathElement::new(line, chart::TEXT.stroke_width(2))])?;
        }
        for (kernel, at) in &kernels {
            let (x, y) = chart.backend_coord(at);
            let size = 3.0 + 14.0 * kernel.share.max(0.0).sqrt();
            let near = kernel
                .rates
                .roof_share
                .map_or_else(String::new, |share| format!(", {} of its roof", text::percent(share)));
            let says = format!(
                "{}: {}, {:.1} FLOP/byte{near}, {} of kernel time",
                without_signature(&kernel.name),
                text::flops(at.1),
                at.0,
                text::percent(kernel.share),
            );
            dots += &format!(
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"{size:.1}\" fill=\"{}\" fill-opacity=\"0.75\"><title>{}</title></circle>\n",
                chart::hex(colour(kernel.family)),
                escaped(&says),
            );
        }
        Ok(())
    })?;
    let svg = svg.replacen("</svg>", &format!("{dots}</svg>"), 1);
    let legend = stepscope_traces::Family::ALL.iter();
    let legend = legend.filter(|family| kernels.iter().any(|(kernel, _)| kernel.family == **family));
    let legend = legend.map(|family| (family.word().to_owned(), colour(*family))).collect();
    let note =
        "FLOP/s against FLOPs per byte of memory, both logarithmic; larger is more time; point at a kernel".into();
    Ok(Figure { title, note, legend, svg }.written())
}

/// Powers of ten that some values lie between.
fn around(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN_POSITIVE, f64::max));
    10_f64.powf(low.log10().floor())..10_f64.powf((high * 1.01).log10().ceil())
}
