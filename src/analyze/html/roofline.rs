//! Kernels under the roof of their device: what they compute for each byte, and how fast.

use anyhow::Result;
use stepscope_analyzer::{Analysis, KernelFigures};
use stepscope_plan::text;
use stepscope_traces::without_signature;

use crate::render::html::{
    chart,
    scatter::{Dot, Scatter},
};

pub(super) fn plot(analysis: &Analysis) -> Result<String> {
    let dots: Vec<Dot> = analysis.kernels.iter().filter_map(dot).collect();
    let Some(roof) = analysis.roofline.as_ref().filter(|_| !dots.is_empty()) else { return Ok(String::new()) };
    let legend = stepscope_traces::Family::ALL.iter();
    let legend = legend
        .filter(|family| analysis.kernels.iter().any(|kernel| kernel.family == **family && place(kernel).is_some()));
    Scatter {
        title: "Roofline".into(),
        note: "FLOP/s against FLOPs per byte of memory, both logarithmic; larger is more time; point at a kernel"
            .into(),
        legend: legend.map(|family| (family.word().to_owned(), chart::of_family(*family))).collect(),
        ridge: roof.memory_bandwidth.map(|bandwidth| (roof.peak_flops / bandwidth, roof.peak_flops)),
        dots,
        labels: [&|intensity: &f64| format!("{intensity}"), &|rate: &f64| text::flops(*rate)],
    }
    .written()
}

/// FLOPs per byte, and a second.
fn place(kernel: &KernelFigures) -> Option<(f64, f64)> {
    let place = kernel.rates.arithmetic_intensity.zip(kernel.rates.flops_per_second);
    place.filter(|(intensity, rate)| *intensity > 0.0 && *rate > 0.0)
}

fn dot(kernel: &KernelFigures) -> Option<Dot> {
    let at = place(kernel)?;
    let near = kernel.rates.roof_share.map(|share| format!(", {} of its roof", text::percent(share)));
    let says = format!(
        "{}: {}, {:.1} FLOP/byte{}, {} of kernel time",
        without_signature(&kernel.name),
        text::flops(at.1),
        at.0,
        near.unwrap_or_default(),
        text::percent(kernel.share),
    );
    Some(Dot { at, share: kernel.share, colour: chart::of_family(kernel.family), says })
}
